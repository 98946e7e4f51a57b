// git-server serves git repositories over smart HTTP, version 2 of the protocol included: `git http-backend`
// with accounts, repositories on demand and webhooks around it.
//
//	/NAME[.git]                clone and fetch by anybody, unless NAME begins with private/; push with the
//	                           password, which makes the repository if there is none
//	PUT    /api/repos/NAME     make an empty repository
//	DELETE /api/repos/NAME     remove it
//	PUT    /api/hooks/NAME     {"url": U, "secret": S}: tell U of every push, signed as GitHub does
//	GET    /healthz            ok
package main

import (
	"crypto/subtle"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// server holds the repositories. One push at a time: what it changed is found by comparing.
type server struct {
	root, git, user, password, url string
	pushing                        sync.Mutex
	hooks                          sync.Map // name of the repository -> hook
}

// Parts that begin with a dot would lead elsewhere; the others are ordinary names.
var validName = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*(/[A-Za-z0-9_-][A-Za-z0-9._-]*){0,3}$`)

func main() {
	listen := flag.String("listen", "127.0.0.1:8080", "the address to serve on")
	root := flag.String("repositories", "", "the directory of the repositories")
	user := flag.String("user", "", "who may push")
	password := flag.String("password", "", "and with which password")
	flag.Parse()
	git, err := exec.LookPath("git")
	if err != nil {
		log.Fatal("git is not found: install it")
	}
	if *root == "" || *user == "" || *password == "" {
		log.Fatal("-repositories, -user and -password are needed")
	}
	s := &server{root: *root, git: git, user: *user, password: *password, url: "http://" + *listen}

	http.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	http.HandleFunc("PUT /api/repos/{name...}", s.authenticated(s.createRepository))
	http.HandleFunc("DELETE /api/repos/{name...}", s.authenticated(s.deleteRepository))
	http.HandleFunc("PUT /api/hooks/{name...}", s.authenticated(s.setHook))
	http.HandleFunc("/", s.serveGit)

	// Asked to end, it ends at once: nobody waits for a sandbox that goes.
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-ended
		os.Exit(0)
	}()
	log.Printf("serving %s on %s", *root, *listen)
	log.Fatal(http.ListenAndServe(*listen, nil))
}

func (s *server) knows(r *http.Request) bool {
	user, password, _ := r.BasicAuth()
	sameUser := subtle.ConstantTimeCompare([]byte(user), []byte(s.user))
	return sameUser&subtle.ConstantTimeCompare([]byte(password), []byte(s.password)) == 1
}

func unauthorized(w http.ResponseWriter, r *http.Request) {
	// A connection that is closed over what was not read is reset, and the answer may be lost with it.
	io.CopyN(io.Discard, r.Body, 1<<20)
	w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
	http.Error(w, "a user and a password are needed", http.StatusUnauthorized)
}

// authenticated lets only those in who know the password, and only for names that can be repositories.
func (s *server) authenticated(next func(http.ResponseWriter, *http.Request, string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		switch {
		case !s.knows(r):
			unauthorized(w, r)
		case !validName.MatchString(name) || strings.HasSuffix(name, ".git"):
			http.Error(w, "no name of a repository: "+name, http.StatusBadRequest)
		default:
			next(w, r, name)
		}
	}
}

func (s *server) dir(name string) string { return filepath.Join(s.root, name+".git") }

func (s *server) exists(name string) bool {
	_, err := os.Stat(filepath.Join(s.dir(name), "HEAD"))
	return err == nil
}

func (s *server) create(name string) error {
	if s.exists(name) {
		return nil
	}
	output, err := s.command("init", "--quiet", "--bare", "--initial-branch=main", s.dir(name)).CombinedOutput()
	if err != nil {
		log.Printf("git init %s: %s", name, output)
	}
	return err
}

// command is git without the settings of any user or machine.
func (s *server) command(args ...string) *exec.Cmd {
	command := exec.Command(s.git, args...)
	command.Env = append(os.Environ(), s.environment()...)
	return command
}

func (s *server) environment() []string {
	return []string{"HOME=" + s.root, "GIT_CONFIG_NOSYSTEM=1"}
}

func (s *server) createRepository(w http.ResponseWriter, _ *http.Request, name string) {
	if err := s.create(name); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func (s *server) deleteRepository(w http.ResponseWriter, _ *http.Request, name string) {
	if !s.exists(name) {
		http.Error(w, "there is no repository "+name, http.StatusNotFound)
		return
	}
	s.pushing.Lock()
	defer s.pushing.Unlock()
	s.hooks.Delete(name)
	if err := os.RemoveAll(s.dir(name)); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *server) setHook(w http.ResponseWriter, r *http.Request, name string) {
	var wanted hook
	if err := json.NewDecoder(r.Body).Decode(&wanted); err != nil || !strings.HasPrefix(wanted.URL, "http") {
		http.Error(w, `write {"url": "http://...", "secret": "..."}`, http.StatusBadRequest)
		return
	}
	s.hooks.Store(name, wanted)
	w.WriteHeader(http.StatusNoContent)
}

func (s *server) serveGit(w http.ResponseWriter, r *http.Request) {
	name, rest := split(r.URL.Path)
	if !validName.MatchString(name) {
		http.NotFound(w, r)
		return
	}
	r.URL.Path = "/" + name + ".git/" + rest
	pushes := rest == "git-receive-pack" || r.URL.Query().Get("service") == "git-receive-pack"
	known := s.knows(r)
	if (pushes || strings.HasPrefix(name, "private/")) && !known {
		unauthorized(w, r)
		return
	}
	if !s.exists(name) {
		if !pushes {
			http.Error(w, "there is no repository "+name, http.StatusNotFound)
			return
		}
		if err := s.create(name); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	backend := &cgi.Handler{
		Path: s.git,
		Args: []string{"http-backend"},
		// The sandbox finds its processes by this mark.
		InheritEnv: []string{"OPCORE_SANDBOX_COMPONENT_OF"},
		Env: append(s.environment(), "GIT_PROJECT_ROOT="+s.root, "GIT_HTTP_EXPORT_ALL=1",
			"GIT_PROTOCOL="+r.Header.Get("Git-Protocol")),
		Stderr: log.Writer(),
	}
	if known {
		backend.Env = append(backend.Env, "REMOTE_USER="+s.user)
	}
	if err := whole(r); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer r.Body.Close()
	if rest != "git-receive-pack" {
		backend.ServeHTTP(w, r)
		return
	}
	s.pushing.Lock()
	defer s.pushing.Unlock()
	before := s.refs(name)
	backend.ServeHTTP(w, r)
	s.tell(name, before, s.refs(name))
}

// split tells the repository from the service, as in /team/app.git/info/refs; the .git may be left out.
func split(path string) (name, rest string) {
	for _, service := range []string{"info/refs", "git-upload-pack", "git-receive-pack"} {
		if name, found := strings.CutSuffix(path, "/"+service); found {
			return strings.TrimSuffix(strings.TrimPrefix(name, "/"), ".git"), service
		}
	}
	return "", ""
}

// whole gives a request of unknown length a known one, which CGI needs: git sends large packs in chunks.
func whole(r *http.Request) error {
	if r.ContentLength >= 0 {
		return nil
	}
	file, err := os.CreateTemp("", "push-")
	if err != nil {
		return err
	}
	// Gone when it is closed.
	os.Remove(file.Name())
	length, err := io.Copy(file, r.Body)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		file.Close()
		return err
	}
	r.Body, r.ContentLength, r.TransferEncoding = file, length, nil
	return nil
}
