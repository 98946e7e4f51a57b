// csi-registrar tells the kubelet of a CSI driver. It stands in for Kubernetes' node-driver-registrar, whose module cannot be
// obtained from a module proxy, and takes the flags that a driver's pod gives it:
//
//	-csi-address                 the socket of the driver, as this program sees it
//	-kubelet-registration-path   the same socket, as the kubelet sees it
//	-plugin-registration-path    the directory in which the kubelet looks for plugins, as this program sees it
//
// The kubelet finds the socket NAME-reg.sock in that directory, asks it for the driver's name and socket, and says how the
// registration went. The socket is removed at the end, so that the kubelet forgets the driver.
package main

import (
	"context"
	"errors"
	"flag"
	"io/fs"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// patience is how long the driver may take to start.
const patience = time.Minute

// registrar answers the kubelet.
type registrar struct {
	registration.UnimplementedRegistrationServer
	driver, socket string
	refused        chan<- string
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type:              registration.CSIPlugin,
		Name:              r.driver,
		Endpoint:          r.socket,
		SupportedVersions: []string{"1.0.0"},
	}, nil
}

func (r *registrar) NotifyRegistrationStatus(
	_ context.Context, status *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	if status.PluginRegistered {
		log.Printf("the kubelet has registered %s at %s", r.driver, r.socket)
	} else {
		r.refused <- status.Error
	}
	return &registration.RegistrationStatusResponse{}, nil
}

func main() {
	driver := flag.String("csi-address", "/run/csi/socket", "the socket of the driver, as this program sees it")
	socket := flag.String("kubelet-registration-path", "", "the socket of the driver, as the kubelet sees it")
	plugins := flag.String("plugin-registration-path", "/registration", "where the kubelet looks for plugins")
	flag.Parse()
	if *socket == "" {
		log.Fatal("-kubelet-registration-path is needed: the socket of the driver, as the kubelet sees it")
	}
	asked, ended := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer ended()
	if err := run(asked, *driver, *socket, *plugins); err != nil && asked.Err() == nil {
		log.Fatal(err)
	}
}

// run serves the kubelet until it is asked to end, or the kubelet refuses the driver.
func run(asked context.Context, driver, socket, plugins string) error {
	name, err := ask(asked, driver)
	if err != nil {
		return err
	}
	at := filepath.Join(plugins, name+"-reg.sock")
	// That of a predecessor which was killed.
	if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// The kubelet alone has business here.
	syscall.Umask(0o077)
	listener, err := net.Listen("unix", at)
	if err != nil {
		return err
	}
	refused := make(chan string, 1)
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{driver: name, socket: socket, refused: refused})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	log.Printf("serving the kubelet at %s", at)

	// Stopping removes the socket.
	defer server.Stop()
	select {
	case <-asked.Done():
		return nil
	case err := <-served:
		return err
	case why := <-refused:
		return errors.New("the kubelet refuses the driver: " + why)
	}
}

// ask the driver for its name, once it has started.
func ask(asked context.Context, driver string) (string, error) {
	asked, cancel := context.WithTimeout(asked, patience)
	defer cancel()
	connection, err := grpc.NewClient("unix:"+driver, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return "", err
	}
	defer connection.Close()
	info, err := csi.NewIdentityClient(connection).GetPluginInfo(
		asked, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return "", err
	}
	return info.Name, nil
}
