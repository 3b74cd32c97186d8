package main

import (
	"os"
	"sync"
)

// taskMap is a map that all tasks share.
type taskMap interface {
	put(key, value uint64)
	get(key uint64) (value uint64, found bool)
	// each visits all entries, once no task uses the map.
	each(visit func(key, value uint64))
}

// newTaskMap returns a sync.Map if the variable TASKS_MAP says so, and otherwise a map in shards.
func newTaskMap() taskMap {
	if os.Getenv("TASKS_MAP") == "sync.Map" {
		return &syncMap{}
	}
	entries := &shardedMap{}
	for i := range entries {
		entries[i].values = map[uint64]uint64{}
	}
	return entries
}

// shardedMap divides the entries among maps, each under a lock of its own.
type shardedMap [64]shard

// shard has room around its lock.
type shard struct {
	lock   sync.RWMutex
	values map[uint64]uint64
	_      [32]byte
}

func (entries *shardedMap) put(key, value uint64) {
	shard := &entries[key%uint64(len(entries))]
	shard.lock.Lock()
	shard.values[key] = value
	shard.lock.Unlock()
}

func (entries *shardedMap) get(key uint64) (value uint64, found bool) {
	shard := &entries[key%uint64(len(entries))]
	shard.lock.RLock()
	value, found = shard.values[key]
	shard.lock.RUnlock()
	return value, found
}

func (entries *shardedMap) each(visit func(key, value uint64)) {
	for i := range entries {
		for key, value := range entries[i].values {
			visit(key, value)
		}
	}
}

// syncMap is the map of Go's library for several goroutines, which holds keys and values of any type.
type syncMap struct {
	entries sync.Map
}

func (all *syncMap) put(key, value uint64) {
	all.entries.Store(key, value)
}

func (all *syncMap) get(key uint64) (uint64, bool) {
	found, isThere := all.entries.Load(key)
	if !isThere {
		return 0, false
	}
	value, isNumber := found.(uint64)
	return value, isNumber
}

func (all *syncMap) each(visit func(key, value uint64)) {
	all.entries.Range(func(key, value any) bool {
		visit(key.(uint64), value.(uint64))
		return true
	})
}
