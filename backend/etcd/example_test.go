package etcd_test

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/seed-1795987d/onerun/backend/both"
	"github.com/seed-1795987d/onerun/backend/etcd"
	"github.com/seed-1795987d/onerun/guard"
)

func ExampleNew() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:         []string{"etcd-1:2379", "etcd-2:2379", "etcd-3:2379"},
		DialKeepAliveTime: 5 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	g, err := guard.New(etcd.New(client), guard.WithTTL(30*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer g.Close(context.Background())
	err = g.Do(context.Background(), "report:2026-11-21", func(ctx context.Context) error {
		fmt.Println("making the report under the fence", guard.Fence(ctx))
		return nil
	}, guard.WithOnce(24*time.Hour))
	fmt.Println(err)
}

// A fleet moves from another backend, here on the same servers, to etcd.
func ExampleWithPrefix() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"etcd-1:2379"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	old, next := etcd.New(client), etcd.New(client, etcd.WithPrefix("jobs/onerun/"))
	_, err = guard.New(both.New(old, next))
	fmt.Println(err)
}
