package stage_test

import (
	"fmt"

	"github.com/seed-1795987d/onerun/internal/verify/demo/stage"
)

func ExampleTable() {
	var table stage.Table
	table.Exactly("coupons claimed", 100, 131, "oversold by 31")
	table.Exactly("users who have more than one", 0, 0, "")
	table.AtLeast("stale writes refused by the fence", 1, 2, "")
	fmt.Println(&table)
	fmt.Println("kept:", table.Kept())
	// Output:
	//    in the database                     promised    found   ok
	//    ---------------                     --------    -----   --
	//    coupons claimed                     100         131     NO    oversold by 31
	//    users who have more than one        0           0       yes
	//    stale writes refused by the fence   1 or more   2       yes
	//
	// kept: false
}
