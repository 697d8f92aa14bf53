package stores

import (
	"slices"
	"sync"
)

// follow keeps something in each store for as long as it is there: join begins it, and what join answers with ends it; nil
// means that there is nothing to end. Before that it tells the order of the stores. It returns once stop is closed and all
// has ended.
func follow(provider Provider, stop <-chan struct{}, order func([]*Store), join func(*Store) (leave func())) {
	var leaving sync.WaitGroup
	here := map[*Store]func(){}
	for {
		present, changed := provider.Stores()
		order(present)
		for store, leave := range here {
			if !slices.Contains(present, store) {
				delete(here, store)
				leaving.Go(leave)
			}
		}
		for _, store := range present {
			if _, there := here[store]; there {
				continue
			}
			if leave := join(store); leave != nil {
				here[store] = leave
			}
		}
		select {
		case <-changed:
		case <-stop:
			for _, leave := range here {
				leaving.Go(leave)
			}
			leaving.Wait()
			return
		}
	}
}
