// Package stage is what the examples have in common and what is not about guarding: the flags, a
// backend and a database to run on, processes to run in, and the table at the end.
//
// A program is started once. It starts itself again, several times over, as its own child
// processes:
//
//	func main() {
//		var r replica
//		if ctx, parent, ok := stage.Join(&r); ok {
//			os.Exit(r.main(ctx, parent)) // a child, with the settings in r
//		}
//		os.Exit(stage.Example{Name: "lottery", Play: play}.Main(os.Args[1:]))
//	}
//
// Parent and children talk in lines over the children's standard input and output. A child ends
// when its standard input does, so none outlives the parent, however that ended.
package stage
