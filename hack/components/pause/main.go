// pause is the first process of every pod and of the node itself: it holds the namespaces open, and
// takes in the children that others leave behind.
//
// On the node it also opens volumes: `pause -volumes DIR` lets everybody write to the directories that
// appear in DIR. The controller manager makes them for root alone, and no pod should have to be root.
package main

import (
	"flag"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"unsafe"
)

func main() {
	volumes := flag.String("volumes", "", "open the directories that appear in this one to everybody")
	flag.Parse()
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	if *volumes != "" {
		go open(*volumes)
	}
	// Children may have ended before anybody listened.
	reap()
	for received := range signals {
		if received != syscall.SIGCHLD {
			return
		}
		reap()
	}
}

// reap waits for every child that has ended: one signal may stand for many.
func reap() {
	for {
		pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
	}
}

func open(dir string) {
	watch, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err == nil {
		_, err = syscall.InotifyAddWatch(watch, dir, syscall.IN_CREATE|syscall.IN_ONLYDIR)
	}
	if err != nil {
		log.Fatalf("cannot watch %s: %v", dir, err)
	}
	events := make([]byte, 64*1024)
	for {
		n, err := syscall.Read(watch, events)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			log.Fatalf("cannot watch %s: %v", dir, err)
		}
		for at := 0; at < n; {
			event := (*syscall.InotifyEvent)(unsafe.Pointer(&events[at]))
			at += syscall.SizeofInotifyEvent
			name := strings.TrimRight(string(events[at:at+int(event.Len)]), "\x00")
			at += int(event.Len)
			if err := os.Chmod(filepath.Join(dir, name), 0o777); err != nil {
				log.Printf("cannot open a volume: %v", err)
			}
		}
	}
}
