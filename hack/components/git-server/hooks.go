package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log"
	"net/http"
	"path"
	"strings"
	"time"
)

// hook is who wants to hear of pushes.
type hook struct {
	URL    string `json:"url"`
	Secret string `json:"secret"`
}

const nothing = "0000000000000000000000000000000000000000"

var client = http.Client{Timeout: 10 * time.Second}

// refs are the branches and tags of a repository, and the commits they stand for.
func (s *server) refs(name string) map[string]string {
	output, err := s.command("-C", s.dir(name), "for-each-ref", "--format=%(refname) %(objectname)").Output()
	if err != nil {
		log.Printf("git for-each-ref %s: %v", name, err)
	}
	refs := map[string]string{}
	for line := range strings.Lines(string(output)) {
		ref, commit, _ := strings.Cut(strings.TrimSpace(line), " ")
		refs[ref] = commit
	}
	return refs
}

// tell sends one event for every ref that a push changed.
func (s *server) tell(name string, before, after map[string]string) {
	found, ok := s.hooks.Load(name)
	if !ok {
		return
	}
	for ref, commit := range after {
		if before[ref] != commit {
			go s.deliver(found.(hook), name, ref, before[ref], commit)
		}
	}
	for ref, commit := range before {
		if _, kept := after[ref]; !kept {
			go s.deliver(found.(hook), name, ref, commit, "")
		}
	}
}

// deliver sends the event once, as GitHub does: what a receiver misses it must find by looking.
func (s *server) deliver(to hook, name, ref, before, after string) {
	body, err := json.Marshal(s.event(name, ref, before, after))
	if err != nil {
		log.Printf("hook %s: %v", to.URL, err)
		return
	}
	request, err := http.NewRequest(http.MethodPost, to.URL, bytes.NewReader(body))
	if err != nil {
		log.Printf("hook %s: %v", to.URL, err)
		return
	}
	signature := hmac.New(sha256.New, []byte(to.Secret))
	signature.Write(body)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-GitHub-Event", "push")
	request.Header.Set("X-GitHub-Delivery", rand.Text())
	request.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(signature.Sum(nil)))
	answer, err := client.Do(request)
	if err != nil {
		log.Printf("hook %s: %v", to.URL, err)
		return
	}
	answer.Body.Close()
	log.Printf("hook %s: %s %s: %s", to.URL, name, ref, answer.Status)
}

// event holds the fields of GitHub's push event that say what happened and where.
func (s *server) event(name, ref, before, after string) map[string]any {
	url := s.url + "/" + name + ".git"
	return map[string]any{
		"ref":     ref,
		"before":  or(before, nothing),
		"after":   or(after, nothing),
		"created": before == "",
		"deleted": after == "",
		"repository": map[string]any{
			"name":           path.Base(name),
			"full_name":      name,
			"clone_url":      url,
			"html_url":       url,
			"private":        strings.HasPrefix(name, "private/"),
			"default_branch": "main",
		},
		"pusher": map[string]any{"name": s.user},
		"sender": map[string]any{"login": s.user},
	}
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
