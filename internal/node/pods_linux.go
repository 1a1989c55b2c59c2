package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const containerGrace = 10 // seconds, before a container is killed

// endPods stops and removes every pod, all at once, so that networks are taken
// down by the plugins that set them up. The kubelet must have ended before.
func endPods(socket string, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	client := cri.NewRuntimeServiceClient(conn)
	pods, err := client.ListPodSandbox(ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		return fmt.Errorf("list the pods: %w", err)
	}
	errs := make([]error, len(pods.Items))
	var wg sync.WaitGroup
	for i, p := range pods.Items {
		wg.Go(func() { errs[i] = endPod(ctx, client, p.Id) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func endPod(ctx context.Context, client cri.RuntimeServiceClient, id string) error {
	list, err := client.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{PodSandboxId: id}})
	if err != nil {
		return err
	}
	errs := make([]error, len(list.Containers))
	var wg sync.WaitGroup
	for i, c := range list.Containers {
		wg.Go(func() {
			_, errs[i] = client.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: c.Id, Timeout: containerGrace})
		})
	}
	wg.Wait()
	_, err = client.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
	if err == nil {
		_, err = client.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
	}
	return errors.Join(append(errs, err)...)
}
