package connect

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
)

// TLS names the files for connections by TLS, in PEM. Empty names are defaults of crypto/tls.
type TLS struct{ CA, Cert, Key string }

func (t TLS) isZero() bool { return t == TLS{} }

// apply adds the files to config, which is nil if a URL does not ask for TLS. A URL must not turn
// off what TLS is for.
func (t TLS) apply(config *tls.Config) error {
	switch {
	case config != nil && config.InsecureSkipVerify:
		return errors.New("--redis: skip_verify is refused: anyone on the network could be the server; name its authority with --tls-ca")
	case t.isZero():
		return nil
	case config == nil:
		return errors.New("--tls-ca, --tls-cert and --tls-key need URLs that begin with rediss")
	case (t.Cert == "") != (t.Key == ""):
		return errors.New("--tls-cert and --tls-key need each other")
	}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return fmt.Errorf("--tls-ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("--tls-ca: %s has no certificate in PEM", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return nil
}
