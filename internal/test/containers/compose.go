package main

import (
	"context"
	"path/filepath"

	"github.com/compose-spec/compose-go/v2/loader"
	"github.com/compose-spec/compose-go/v2/types"
)

// compose returns the containers that are built. The loader checks the file against the
// specification's schema, the conditions of depends_on, and the volumes.
func compose(path string) (map[string]container, error) {
	project, err := loader.LoadWithContext(context.Background(), types.ConfigDetails{
		WorkingDir:  filepath.Dir(path),
		ConfigFiles: []types.ConfigFile{{Filename: path}},
		Environment: types.Mapping{"POSTGRES_PASSWORD": "secret"},
	})
	if err != nil {
		return nil, err
	}
	found := map[string]container{}
	for _, service := range project.Services {
		if service.Build == nil {
			continue
		}
		c := container{Args: service.Command, Env: map[string]string{}, User: service.User}
		for name, value := range service.Environment {
			if value != nil {
				c.Env[name] = *value
			}
		}
		for _, port := range service.Ports {
			c.Port = int32(port.Target)
		}
		if service.StopGracePeriod != nil {
			c.Grace = int64(*service.StopGracePeriod) / 1e9
		}
		found[service.Name] = c
	}
	return found, nil
}
