// echo is a small web server for pods of tests and demos. It needs no shell, no files and no rights.
//
//	GET  /             answers with the name of its host
//	GET  /fetch?url=U  answers with what it gets from U: a look at the network from inside the pod
//	PUT  /files/NAME   writes a file to the directory of -files
//	GET  /files/NAME   reads it
//	GET  /metrics      tells Prometheus how often it was asked
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	listen := flag.String("listen", ":8080", "the address to serve on")
	files := flag.String("files", "/data", "the directory of the files that are written and read")
	flag.Parse()

	http.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		name, _ := os.Hostname()
		fmt.Fprintln(w, name)
	})
	http.HandleFunc("GET /fetch", fetch)
	http.HandleFunc("PUT /files/{name}", func(w http.ResponseWriter, r *http.Request) { write(*files, w, r) })
	http.HandleFunc("GET /files/{name}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFileFS(w, r, os.DirFS(*files), r.PathValue("name"))
	})

	var requests atomic.Int64
	http.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "# HELP echo_requests_total Requests so far.\n# TYPE echo_requests_total counter\n")
		fmt.Fprintf(w, "echo_requests_total %d\n", requests.Load())
	})
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		http.DefaultServeMux.ServeHTTP(w, r)
	})

	// Asked to end, it ends at once: nobody waits for a test's pod.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-ended
		os.Exit(0)
	}()
	log.Printf("serving on %s", *listen)
	log.Fatal(http.ListenAndServe(*listen, counted))
}

func fetch(w http.ResponseWriter, r *http.Request) {
	client := http.Client{Timeout: 5 * time.Second}
	answer, err := client.Get(r.URL.Query().Get("url"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	w.WriteHeader(answer.StatusCode)
	io.Copy(w, answer.Body)
}

// write keeps the file inside the directory, whatever its name says.
func write(dir string, w http.ResponseWriter, r *http.Request) {
	root, err := os.OpenRoot(dir)
	if err == nil {
		defer root.Close()
		var file *os.File
		if file, err = root.Create(r.PathValue("name")); err == nil {
			_, err = io.Copy(file, r.Body)
			if closed := file.Close(); err == nil {
				err = closed
			}
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}
