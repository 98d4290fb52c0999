package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// The pause between two attempts to connect grows by half each time, from the first to the longest.
const (
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// runRemote runs the text in the login shell of the host. Cancelling sends SIGTERM and hangs up.
func runRemote(ctx context.Context, to connection, run invocation) error {
	client, closeClient, err := dial(ctx, to)
	if err != nil {
		return err
	}
	defer closeClient()
	session, err := client.NewSession()
	if err != nil {
		return err
	}
	for _, v := range run.variables {
		switch err := session.Setenv(v.name, v.value); {
		case err != nil && v.lenient:
			run.warn(fmt.Sprintf("the SSH server refused %s (no AcceptEnv for it); "+
				"addPreviousOutputInEnv=false silences this", v.name))
		case err != nil:
			return fmt.Errorf("the SSH server refused the environment variable %s: let it in with "+
				"AcceptEnv, or set it in the command itself: %w", v.name, err)
		}
	}
	if run.stdin != nil {
		session.Stdin = strings.NewReader(*run.stdin)
	}
	session.Stdout, session.Stderr = run.stdout, run.stderr
	stop := context.AfterFunc(ctx, func() {
		_ = session.Signal(ssh.SIGTERM) // an error says that it has ended
		time.AfterFunc(time.Second, closeClient)
	})
	defer stop()
	return session.Run(run.text)
}

// dial connects to a host, through its proxy if it has one. The function closes what was opened.
func dial(ctx context.Context, to connection) (*ssh.Client, func(), error) {
	if to.Proxy == nil {
		client, err := dialRetrying(ctx, to, (&net.Dialer{}).DialContext)
		return client, func() { _ = client.Close() }, err
	}
	proxy, err := dialRetrying(ctx, *to.Proxy, (&net.Dialer{}).DialContext)
	if err != nil {
		return nil, nil, fmt.Errorf("proxy: %w", err)
	}
	client, err := dialRetrying(ctx, to, proxy.DialContext)
	if err != nil {
		_ = proxy.Close()
	}
	return client, func() { _ = client.Close(); _ = proxy.Close() }, err
}

type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// dialRetrying dials until it works, until more than DialErrorLimit attempts have failed (-1: for
// ever), or until the host shows another key than the one given, which no retry will mend.
func dialRetrying(ctx context.Context, to connection, dial dialer) (*ssh.Client, error) {
	if to.Host == "" {
		return nil, errors.New("connection.host is empty")
	}
	config, closeAgent, err := clientConfig(to)
	if err != nil {
		return nil, err
	}
	defer closeAgent()
	pause := firstPause
	for failed := 1; ; failed++ {
		client, err := dialOnce(ctx, to, config, dial)
		if err == nil {
			return client, nil
		}
		final := errors.Is(err, errHostKey) || ctx.Err() != nil
		if final || (to.DialErrorLimit >= 0 && failed > to.DialErrorLimit) {
			return nil, fmt.Errorf("cannot connect to %s@%s after %d attempts: %w", to.User, to.Host, failed, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(pause*3/2, longestPause)
	}
}

// dialOnce bounds the whole of connecting, handshake included, by PerDialTimeout.
func dialOnce(
	ctx context.Context, to connection, config *ssh.ClientConfig, dial dialer,
) (*ssh.Client, error) {
	if to.PerDialTimeout > 0 {
		bounded, cancel := context.WithTimeout(ctx, time.Duration(to.PerDialTimeout)*time.Second)
		defer cancel()
		ctx = bounded
	}
	address := net.JoinHostPort(to.Host, strconv.Itoa(to.Port))
	raw, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// Not by a deadline: connections through a proxy have none.
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	conn, channels, requests, err := ssh.NewClientConn(raw, address, config)
	if err != nil {
		_ = raw.Close()
		return nil, errors.Join(err, ctx.Err())
	}
	return ssh.NewClient(conn, channels, requests), nil
}

var errHostKey = errors.New("the host's key is not connection.hostKey")

// clientConfig offers the private key, the agent's keys and the password, in this order. The function
// closes the connection to the agent.
func clientConfig(to connection) (*ssh.ClientConfig, func(), error) {
	config := &ssh.ClientConfig{User: to.User, HostKeyCallback: ssh.InsecureIgnoreHostKey()}
	closeAgent := func() {}
	if to.HostKey != "" {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(to.HostKey))
		if err != nil {
			return nil, nil, fmt.Errorf("connection.hostKey is not of the form \"TYPE BASE64\": %w", err)
		}
		config.HostKeyCallback = func(_ string, _ net.Addr, shown ssh.PublicKey) error {
			if string(shown.Marshal()) != string(key.Marshal()) {
				return fmt.Errorf("%w: it is %s", errHostKey, ssh.FingerprintSHA256(shown))
			}
			return nil
		}
		// A host has keys of several types and must show the one that we know.
		config.HostKeyAlgorithms = []string{key.Type()}
		if key.Type() == ssh.KeyAlgoRSA {
			config.HostKeyAlgorithms = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSA}
		}
	}

	var signers []ssh.Signer
	if to.PrivateKey != "" {
		var signer ssh.Signer
		var err error
		if to.PrivateKeyPassword == "" {
			signer, err = ssh.ParsePrivateKey([]byte(to.PrivateKey))
		} else {
			signer, err = ssh.ParsePrivateKeyWithPassphrase(
				[]byte(to.PrivateKey), []byte(to.PrivateKeyPassword))
		}
		if err != nil {
			return nil, nil, fmt.Errorf("connection.privateKey: %w", err)
		}
		signers = append(signers, signer)
	}
	socket := to.AgentSocketPath
	if socket == "" {
		socket = os.Getenv("SSH_AUTH_SOCK")
	}
	if socket != "" {
		held, closing, err := agentSigners(socket)
		if err == nil {
			signers, closeAgent = append(signers, held...), closing
		} else if to.PrivateKey == "" && to.Password == "" { // else a dead agent is no obstacle
			return nil, nil, fmt.Errorf("SSH agent at %s: %w", socket, err)
		}
	}
	if len(signers) > 0 {
		config.Auth = append(config.Auth, ssh.PublicKeys(signers...))
	}
	if to.Password != "" {
		config.Auth = append(config.Auth, ssh.Password(to.Password), ssh.KeyboardInteractive(
			func(_, _ string, questions []string, _ []bool) ([]string, error) {
				answers := make([]string, len(questions))
				for i := range answers {
					answers[i] = to.Password
				}
				return answers, nil
			}))
	}
	return config, closeAgent, nil
}

func agentSigners(socket string) ([]ssh.Signer, func(), error) {
	connected, err := net.Dial("unix", socket)
	if err != nil {
		return nil, nil, err
	}
	closing := func() { _ = connected.Close() }
	signers, err := agent.NewClient(connected).Signers()
	if err != nil {
		closing()
	}
	return signers, closing, err
}
