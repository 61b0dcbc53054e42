// Command now prints, for each line that it reads, what its wall clock shows, and by its monotonic
// clock how long it has run, in nanoseconds.
package main

import (
	"bufio"
	"fmt"
	"os"
	"time"
)

func main() {
	start := time.Now()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		fmt.Println(time.Now().UnixNano(), int64(time.Since(start)))
	}
}
