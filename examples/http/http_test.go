package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed-1795987d/onerun/examples/internal/programtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

func TestMain(m *testing.M) { programtest.Main(m, main) }

// A payment whose first answer is lost is made once, and the second place gives the first answer.
func TestPay_paysOnceAlthoughTheFirstAnswerIsLost(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	loses := programtest.Start(t, "-redis", addr, "-serve", "127.0.0.1:0", "-lose")
	first := loses.Says("taking payments on ")
	answers := programtest.Start(t, "-redis", addr, "-serve", "127.0.0.1:0")
	second := answers.Says("taking payments on ")

	for range 3 {
		client := programtest.Start(t, "-pay", "42", "-at", "http://"+first+",http://"+second)
		client.Ends()
		said := client.Said()
		require.Equal(t, 1, strings.Count(said, "no answer: "), said)
		require.Regexp(t, `\npaid 42, receipt \w{8}\n$`, said)
	}
	require.Equal(t, 3, strings.Count(loses.Said(), "alice pays 42\n"), "once for each payment")
	require.NotContains(t, answers.Said(), "pays", "it has only repeated the answers")
}

// A place that is down is passed over.
func TestPay_asksTheNextPlace(t *testing.T) {
	t.Parallel()
	server := programtest.Start(t, "-redis", redistest.Start(t).Addr(), "-serve", "127.0.0.1:0")
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	at := server.Says("taking payments on ")
	client := programtest.Start(t, "-pay", "7", "-at", down.URL+",http://"+at)
	client.Ends()
	require.Contains(t, client.Said(), "no answer: ")
	require.Contains(t, client.Said(), "paid 7, receipt ")
}
