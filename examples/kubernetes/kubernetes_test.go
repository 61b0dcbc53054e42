package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/seed-1795987d/onerun/internal/testkit/processtest"
	"github.com/seed-1795987d/onerun/internal/testkit/redistest"
)

// programEnv makes the test binary the program.
const programEnv = "REPORTS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(programEnv) != "" {
		main()
		return
	}
	redistest.VerifyNoLeaks(m)
}

// A replica is a pod: a process of the program.
type replica struct {
	*processtest.Child
	ready string // the URL of the probe
}

func start(t *testing.T, addr, pod string) replica {
	t.Helper()
	p := processtest.Self(t, programEnv+"=1", "REDIS_URL=redis://"+addr, "POD_NAME="+pod, "PROBES_ADDR=127.0.0.1:0", "SCHEDULE=@every 1s")
	return replica{p, "http://" + p.Says("probes on ") + "/ready"}
}

// reports returns the ticks that the replica has run so far.
func (r replica) reports() (ticks []string) {
	for line := range strings.Lines(r.Said()) {
		if tick, ok := strings.CutPrefix(line, "report for "); ok {
			ticks = append(ticks, strings.TrimSpace(tick))
		}
	}
	return ticks
}

// terminate stops the replica as Kubernetes does.
func (r replica) terminate(t *testing.T) {
	t.Helper()
	require.NoError(t, r.Signal(syscall.SIGTERM))
	r.Ends()
}

// Three replicas have the same schedule. One of them is replaced meanwhile, as in a rolling update.
func TestReports_eachTickRunsInOneOfThreeReplicas(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t).Addr()
	var all []replica
	for i := range 3 {
		all = append(all, start(t, addr, fmt.Sprintf("reports-%d", i)))
	}
	ticks := func() (n int) {
		for _, r := range all {
			n += len(r.reports())
		}
		return n
	}
	wait := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool { return ticks() >= n }, time.Minute, 10*time.Millisecond)
	}
	wait(2)
	all[0].terminate(t)
	all = append(all, start(t, addr, "reports-3"))
	wait(5)
	for _, r := range all[1:] {
		r.terminate(t)
	}

	runs, first, last := map[string]int{}, time.Time{}, time.Time{}
	for _, r := range all {
		for _, report := range r.reports() {
			runs[report]++
			tick, err := time.Parse(time.RFC3339, report)
			require.NoError(t, err)
			if first.IsZero() || tick.Before(first) {
				first = tick
			}
			if tick.After(last) {
				last = tick
			}
		}
	}
	for tick := first; !tick.After(last); tick = tick.Add(time.Second) {
		require.Equal(t, 1, runs[tick.Format(time.RFC3339)], "runs of %s, of %v", tick, runs)
	}
}

func TestReports_isReadyWhileRedisAnswers(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	r := start(t, server.Addr(), "reports-0")
	require.Equal(t, http.StatusOK, probe(t, r.ready))
	server.Kill()
	require.Equal(t, http.StatusServiceUnavailable, probe(t, r.ready))
}

func probe(t *testing.T, url string) (status int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	require.NoError(t, err)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// deployment is what the test reads of deployment.yaml.
type deployment struct {
	Spec struct {
		Replicas int
		Template struct {
			Spec struct {
				Grace           int   `yaml:"terminationGracePeriodSeconds"`
				Token           *bool `yaml:"automountServiceAccountToken"`
				SecurityContext struct {
					RunAsNonRoot   bool                  `yaml:"runAsNonRoot"`
					SeccompProfile struct{ Type string } `yaml:"seccompProfile"`
				} `yaml:"securityContext"`
				Containers []struct {
					SecurityContext struct {
						AllowPrivilegeEscalation *bool `yaml:"allowPrivilegeEscalation"`
						ReadOnlyRootFilesystem   bool  `yaml:"readOnlyRootFilesystem"`
						Capabilities             struct{ Drop []string }
					} `yaml:"securityContext"`
					Env []struct {
						Name      string
						ValueFrom struct {
							FieldRef struct {
								FieldPath string `yaml:"fieldPath"`
							} `yaml:"fieldRef"`
							SecretKeyRef struct{ Name, Key string } `yaml:"secretKeyRef"`
						} `yaml:"valueFrom"`
					}
					ReadinessProbe struct {
						HTTPGet struct {
							Path string
							Port int
						} `yaml:"httpGet"`
					} `yaml:"readinessProbe"`
					Lifecycle struct {
						PreStop struct {
							Sleep struct{ Seconds int }
						} `yaml:"preStop"`
					}
				}
			}
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(text)
}

func TestDeployment_fitsTheProgram(t *testing.T) {
	t.Parallel()
	var d deployment
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deployment.yaml")), &d))
	require.Equal(t, 3, d.Spec.Replicas)
	pod := d.Spec.Template.Spec
	require.Len(t, pod.Containers, 1)
	c := pod.Containers[0]

	left := time.Duration(pod.Grace-c.Lifecycle.PreStop.Sleep.Seconds) * time.Second
	require.Greater(t, left, grace, "what preStop leaves of terminationGracePeriodSeconds")

	program := read(t, "main.go")
	require.Contains(t, program, fmt.Sprintf(`"GET %s"`, c.ReadinessProbe.HTTPGet.Path))
	require.Contains(t, program, fmt.Sprintf(`":%d"`, c.ReadinessProbe.HTTPGet.Port))
	from := map[string]string{}
	for _, e := range c.Env {
		require.Contains(t, program, fmt.Sprintf("os.Getenv(%q)", e.Name))
		from[e.Name] = e.ValueFrom.FieldRef.FieldPath + e.ValueFrom.SecretKeyRef.Key
	}
	require.Equal(t, map[string]string{"REDIS_URL": "redis-url", "POD_NAME": "metadata.name"}, from)
}

// The pod has no rights that the program does not use.
func TestDeployment_hasNoRightsToSpare(t *testing.T) {
	t.Parallel()
	var d deployment
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "deployment.yaml")), &d))
	pod := d.Spec.Template.Spec
	require.Equal(t, new(false), pod.Token)
	require.True(t, pod.SecurityContext.RunAsNonRoot)
	require.Equal(t, "RuntimeDefault", pod.SecurityContext.SeccompProfile.Type)
	c := pod.Containers[0].SecurityContext
	require.Equal(t, new(false), c.AllowPrivilegeEscalation)
	require.True(t, c.ReadOnlyRootFilesystem)
	require.Equal(t, []string{"ALL"}, c.Capabilities.Drop)
	require.Contains(t, read(t, "Dockerfile"), ":nonroot\n")
}

func TestRun_saysWhichURLItNeedsAndNotWhichItHas(t *testing.T) {
	for _, bad := range []string{"", "127.0.0.1:6379", "http://user:secret@redis", "redis://user:secret@redis:port"} {
		t.Setenv("REDIS_URL", bad)
		err := run()
		require.ErrorContains(t, err, "REDIS_URL must be")
		require.NotContains(t, err.Error(), "secret")
	}
}

// The image has the Go version of the library, and starts what it has built.
func TestDockerfile_fitsTheProgram(t *testing.T) {
	t.Parallel()
	file := read(t, "Dockerfile")
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "../../go.mod"))
	require.Contains(t, file, "FROM golang:"+version[1]+" AS build")
	require.Contains(t, file, "go build -C examples/kubernetes -o /reports .")
	require.Contains(t, file, `ENTRYPOINT ["/reports"]`)
}

// The page shows the program and the manifest that are tested here.
func TestPage_showsTheProgramAndTheManifest(t *testing.T) {
	t.Parallel()
	page := read(t, "../../docs/kubernetes.md")
	_, program, _ := strings.Cut(read(t, "main.go"), "package main\n")
	require.Contains(t, page, "```go\npackage main\n"+program+"```\n")
	require.Contains(t, page, "```yaml\n"+read(t, "deployment.yaml")+"```\n")
}
