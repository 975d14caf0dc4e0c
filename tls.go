package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"semel/config"
)

// A certificate is what the server shows of itself, read anew when its files change:
// whoever renews it need not restart anything.
type certificate struct {
	cert, key string // files; the same one for a certificate that we made
	log       *slog.Logger

	mu     sync.Mutex
	loaded *tls.Certificate // under mu
	stamps [2]time.Time     // under mu; of the files, when they were read
	looked time.Time        // under mu
}

// openCertificate returns the certificate that the configuration names, nil for none. It
// must be good now; that it is later is looked at, not insisted on.
func openCertificate(cfg *config.Config, log *slog.Logger) (*certificate, error) {
	c := &certificate{cert: cfg.Server.TLSCert, key: cfg.Server.TLSKey, log: log}
	switch {
	case cfg.Server.TLSSelfSigned:
		c.cert = selfSignedFile(cfg)
		c.key = c.cert
		if err := ensureSelfSigned(c.cert); err != nil {
			return nil, fmt.Errorf("self-signed certificate: %w", err)
		}
	case c.cert == "":
		return nil, nil
	}
	if fi, err := os.Stat(c.key); err == nil && runtime.GOOS != "windows" && fi.Mode().Perm()&0o007 != 0 {
		log.Warn("everybody on this machine may read the key of the certificate", "file", c.key, "mode", fmt.Sprintf("%#o", fi.Mode().Perm()))
	}
	return c, c.load()
}

func selfSignedFile(cfg *config.Config) string { return cfg.DB + ".tls.pem" }

func (c *certificate) load() error {
	stamps, err := c.stat()
	if err != nil {
		return err
	}
	loaded, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return fmt.Errorf("certificate %s: %w", c.cert, err)
	}
	c.loaded, c.stamps = &loaded, stamps
	return nil
}

func (c *certificate) stat() (stamps [2]time.Time, err error) {
	for i, name := range []string{c.cert, c.key} {
		fi, err := os.Stat(name)
		if err != nil {
			return stamps, err
		}
		stamps[i] = fi.ModTime()
	}
	return stamps, nil
}

// lookEvery is how soon after a change of the files the new certificate is shown.
const lookEvery = time.Second

// get is for [tls.Config]. Files that cannot be read, or do not fit each other yet, leave
// the old one in force.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.Sub(c.looked) >= lookEvery {
		c.looked = now
		stamps, err := c.stat()
		if err == nil && stamps != c.stamps {
			if err = c.load(); err == nil {
				c.log.Info("the certificate is read anew", "sha256", fingerprint(c.loaded.Leaf.Raw))
			}
		}
		if err != nil {
			c.log.Error("the certificate cannot be read; the old one stays", "error", err)
		}
	}
	return c.loaded, nil
}

// config is TLS as it is served. Everything else is tested over HTTP/1.1, so that is what
// is spoken.
func (c *certificate) config() *tls.Config {
	return &tls.Config{GetCertificate: c.get, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
}

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	var parts []string
	for _, b := range sum {
		parts = append(parts, fmt.Sprintf("%02X", b))
	}
	return strings.Join(parts, ":")
}

// ensureSelfSigned makes a certificate where there is none, or none that is good any
// more. Its file holds the key too, for the owner of the database alone.
func ensureSelfSigned(path string) error {
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return writeSelfSigned(path)
	case err != nil:
		return err
	case runtime.GOOS != "windows" && fi.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%s may be read by others: make it yours alone (chmod 600), or remove it to have another made", path)
	}
	pair, err := tls.LoadX509KeyPair(path, path)
	if err != nil {
		return fmt.Errorf("%s: %w; remove it to have another made", path, err)
	}
	if time.Now().After(pair.Leaf.NotAfter.Add(-24 * time.Hour)) {
		return writeSelfSigned(path)
	}
	return nil
}

// writeSelfSigned replaces the file as a whole: if we die here, there is the old one or
// the new one.
func writeSelfSigned(path string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	t := x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "Semel"}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(2, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if name, err := os.Hostname(); err == nil && name != "" {
		t.DNSNames = append(t.DNSNames, name)
	}
	if list, err := net.InterfaceAddrs(); err == nil {
		for _, a := range list {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				t.IPAddresses = append(t.IPAddresses, n.IP)
			}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &t, &t, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	for _, b := range []*pem.Block{{Type: "CERTIFICATE", Bytes: der}, {Type: "PRIVATE KEY", Bytes: private}} {
		if err := pem.Encode(&out, b); err != nil {
			return err
		}
	}
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // 0600
	if err != nil {
		return err
	}
	_, err = f.Write(out.Bytes())
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// knowing is TLS towards our own server: the certificate must be the one of the
// configuration, whatever name it has and whoever signed it.
func knowing(cfg *config.Config) *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, // VerifyConnection is stricter
		VerifyConnection: func(s tls.ConnectionState) error {
			name := cfg.Server.TLSCert
			if cfg.Server.TLSSelfSigned {
				name = selfSignedFile(cfg)
			}
			file, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			block, _ := pem.Decode(file)
			if block == nil || len(s.PeerCertificates) == 0 || !bytes.Equal(block.Bytes, s.PeerCertificates[0].Raw) {
				return errors.New("another server, or another certificate, answers there")
			}
			return nil
		},
	}
}
