// ca-certificates prints the certificates of the authorities that Mozilla trusts, in PEM.
//
// Images get theirs from here: those of the machine that builds an image may be others tomorrow, and may include some that
// only its owner trusts.
package main

import (
	"bufio"
	"encoding/pem"
	"log"
	"os"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	for root := range bundle.Roots() {
		// An authority that is trusted on a condition: PEM cannot say it, and without it the trust goes too far.
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}
