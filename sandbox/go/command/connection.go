package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	p "github.com/pulumi/pulumi-go-provider"
	"github.com/pulumi/pulumi-go-provider/infer"
	"github.com/pulumi/pulumi/sdk/v3/go/common/util/retry"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// Login says how to log in to a host.
type Login struct {
	User               *string  `pulumi:"user,optional"`
	Password           *string  `pulumi:"password,optional" provider:"secret"`
	Host               *string  `pulumi:"host"`
	Port               *float64 `pulumi:"port,optional"`
	PrivateKey         *string  `pulumi:"privateKey,optional" provider:"secret"`
	PrivateKeyPassword *string  `pulumi:"privateKeyPassword,optional" provider:"secret"`
	AgentSocketPath    *string  `pulumi:"agentSocketPath,optional"`
	DialErrorLimit     *int     `pulumi:"dialErrorLimit,optional"`
	PerDialTimeout     *int     `pulumi:"perDialTimeout,optional"`
	HostKey            *string  `pulumi:"hostKey,optional"`
}

// Connection is a host, and the jump host on the way to it.
type Connection struct {
	Login
	Proxy *ProxyConnection `pulumi:"proxy,optional"`
}

// ProxyConnection is a jump host.
type ProxyConnection struct{ Login }

// Annotate sets the token and the defaults.
func (c *Connection) Annotate(a infer.Annotator) {
	a.SetToken("remote", "Connection")
	c.defaults(a)
}

// Annotate sets the token and the defaults.
func (c *ProxyConnection) Annotate(a infer.Annotator) {
	a.SetToken("remote", "ProxyConnection")
	c.defaults(a)
}

func (l *Login) defaults(a infer.Annotator) {
	a.SetDefault(&l.User, "root")
	a.SetDefault(&l.Port, 22)
	a.SetDefault(&l.DialErrorLimit, 10)
	a.SetDefault(&l.PerDialTimeout, 15)
}

// dial connects to the host. Nothing of what it opens is closed, except by the end of this plugin.
func (c *Connection) dial(ctx context.Context) (*ssh.Client, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	if c.Proxy == nil {
		return retried(ctx, "Dial", c.Login, func() (*ssh.Client, error) {
			return ssh.Dial("tcp", c.address(), config)
		})
	}
	client, err := c.dialThrough(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	return client, nil
}

func (c *Connection) dialThrough(
	ctx context.Context, config *ssh.ClientConfig,
) (*ssh.Client, error) {
	proxyConfig, err := c.Proxy.config()
	if err != nil {
		return nil, err
	}
	proxy, err := retried(ctx, "Dial proxy", c.Proxy.Login, func() (*ssh.Client, error) {
		return ssh.Dial("tcp", c.Proxy.address(), proxyConfig)
	})
	if err != nil {
		return nil, err
	}
	tunnel, err := retried(ctx, "Dial from proxy", c.Login, func() (net.Conn, error) {
		return proxy.Dial("tcp", c.address())
	})
	if err != nil {
		return nil, err
	}
	// Every attempt at the handshake uses this one tunnel, as in the official plugin.
	return retried(ctx, "Dial", c.Login, func() (*ssh.Client, error) {
		connection, channels, requests, err := ssh.NewClientConn(tunnel, c.address(), config)
		if err != nil {
			return nil, err
		}
		return ssh.NewClient(connection, channels, requests), nil
	})
}

// retried attempts until it works or more than DialErrorLimit attempts have failed (-1: for ever),
// whatever the reason was. The pauses grow from 0.1 s to 5 s.
func retried[T any](
	ctx context.Context, what string, l Login, attempt func() (T, error),
) (result T, err error) {
	limit := strconv.Itoa(*l.DialErrorLimit)
	if *l.DialErrorLimit == -1 {
		limit = "inf"
	}
	over, _, err := retry.Until(ctx, retry.Acceptor{
		Accept: func(before int, _ time.Duration) (bool, any, error) {
			var failure error
			if result, failure = attempt(); failure == nil {
				return true, nil, nil
			}
			if failed := before + 1; *l.DialErrorLimit < 0 || failed <= *l.DialErrorLimit {
				p.GetLogger(ctx).InfoStatusf("%s %d/%s failed: retrying", what, failed, limit)
				return false, nil, nil
			}
			return true, nil, fmt.Errorf("after %d failed attempts: %w", before, failure)
		},
	})
	if err == nil && !over {
		err = ctx.Err()
	}
	return result, err
}

func (l *Login) address() string {
	return net.JoinHostPort(*l.Host, strconv.Itoa(int(*l.Port)))
}

// config offers the private key, the password and the agent's keys, in this order. An agent that
// does not answer is an error, even beside a private key.
func (l *Login) config() (*ssh.ClientConfig, error) {
	config := &ssh.ClientConfig{
		User:            *l.User,
		HostKeyCallback: ssh.InsecureIgnoreHostKey(),
		Timeout:         time.Duration(*l.PerDialTimeout) * time.Second, // of the TCP connection
	}
	if l.HostKey != nil {
		key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(*l.HostKey))
		if err != nil {
			return nil, fmt.Errorf("failed to parse host key: %w", err)
		}
		config.HostKeyCallback = ssh.FixedHostKey(key)
		// For an RSA key this is "ssh-rsa", a signature with SHA-1, which servers of today refuse.
		config.HostKeyAlgorithms = []string{key.Type()}
	}
	if l.PrivateKey != nil {
		signer, err := signer(*l.PrivateKey, l.PrivateKeyPassword)
		if err != nil {
			return nil, err
		}
		config.Auth = append(config.Auth, ssh.PublicKeys(signer))
	}
	if l.Password != nil {
		config.Auth = append(config.Auth, ssh.Password(*l.Password),
			ssh.KeyboardInteractive(func(_, _ string, asked []string, _ []bool) ([]string, error) {
				answers := make([]string, len(asked))
				for i := range answers {
					answers[i] = *l.Password
				}
				return answers, nil
			}))
	}
	socket := os.Getenv("SSH_AUTH_SOCK")
	if l.AgentSocketPath != nil {
		socket = *l.AgentSocketPath
	} else if socket == "" {
		return config, nil
	}
	connected, err := net.Dial("unix", socket)
	if err != nil {
		return nil, err
	}
	config.Auth = append(config.Auth, ssh.PublicKeysCallback(agent.NewClient(connected).Signers))
	return config, nil
}

func signer(key string, password *string) (ssh.Signer, error) {
	if password == nil {
		return ssh.ParsePrivateKey([]byte(key))
	}
	return ssh.ParsePrivateKeyWithPassphrase([]byte(key), []byte(*password))
}
