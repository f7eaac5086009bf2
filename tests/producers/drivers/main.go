package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/jackc/pgx/v4"
)

// Plays the story, beside page.go of the page.
func main() {
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, "")
	if err != nil {
		log.Fatal(err)
	}
	traceparent := os.Getenv("TRACEPARENT")
	id, err := Pay(ctx, conn, 42, "19.99", &traceparent)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(id)
	if _, err = Pay(ctx, conn, 13, "19.99", nil); err == nil || !strings.Contains(err.Error(), "refused at COMMIT") {
		log.Fatal("order 13: ", err)
	}
	if err = Create(ctx, conn, []int64{1001, 1002, 1003}); err != nil {
		log.Fatal(err)
	}
}
