package stores

import (
	"slices"
	"sync"
)

// follow runs something for each store while the store exists: join starts it, and the function that join returns ends it;
// nil means that there is nothing to end. Before that it reports the order of the stores. It returns once stop is closed and
// everything has ended.
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
