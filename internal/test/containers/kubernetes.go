package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	apps "k8s.io/api/apps/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/yaml"
	strict "sigs.k8s.io/yaml"
)

// manifest has the objects of a file by kind.
type manifest struct {
	jobs        []batch.Job
	deployments []apps.Deployment
	services    []core.Service
	budgets     []policy.PodDisruptionBudget
}

// kubernetes decodes each object into the type of its API, in which unknown and repeated
// fields are errors, and checks what a cluster would only show by doing nothing: selectors
// that match no pod, and ports without a name.
func kubernetes(path string) (map[string]container, error) {
	m, err := readManifest(path)
	if err != nil {
		return nil, err
	}
	found := map[string]container{}
	for _, job := range m.jobs {
		addContainers(found, job.Spec.Template.Spec)
	}
	for _, d := range m.deployments {
		pod := d.Spec.Template
		if err := selects("Deployment "+d.Name, d.Spec.Selector, pod.Labels); err != nil {
			return nil, err
		}
		for _, s := range m.services {
			if err := reaches(s, pod); err != nil {
				return nil, err
			}
		}
		for _, b := range m.budgets {
			if err := selects("PodDisruptionBudget "+b.Name, b.Spec.Selector, pod.Labels); err != nil {
				return nil, err
			}
		}
		addContainers(found, pod.Spec)
	}
	return found, nil
}

func readManifest(path string) (m manifest, err error) {
	file, err := os.Open(path)
	if err != nil {
		return m, err
	}
	defer file.Close()
	for documents := yaml.NewYAMLReader(bufio.NewReader(file)); ; {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return m, nil
		}
		if err == nil {
			err = m.add(bytes.TrimSpace(document))
		}
		if err != nil {
			return m, fmt.Errorf("%s: %w", path, err)
		}
	}
}

func (m *manifest) add(document []byte) error {
	var of meta.TypeMeta
	if err := strict.Unmarshal(document, &of); err != nil {
		return err
	}
	switch of.APIVersion + " " + of.Kind {
	case "batch/v1 Job":
		return add(&m.jobs, document)
	case "apps/v1 Deployment":
		return add(&m.deployments, document)
	case "v1 Service":
		return add(&m.services, document)
	case "policy/v1 PodDisruptionBudget":
		return add(&m.budgets, document)
	}
	return fmt.Errorf("%s %s is not known", of.APIVersion, of.Kind)
}

func add[T any](to *[]T, document []byte) error {
	var object T
	err := strict.UnmarshalStrict(document, &object)
	*to = append(*to, object)
	return err
}

func selects(what string, selector *meta.LabelSelector, pod map[string]string) error {
	s, err := meta.LabelSelectorAsSelector(selector)
	if err == nil && !s.Matches(labels.Set(pod)) {
		err = errors.New("the selector does not match the pods")
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func reaches(s core.Service, pod core.PodTemplateSpec) error {
	if !labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)) {
		return fmt.Errorf("service %s: the selector does not match the pods", s.Name)
	}
	for _, port := range s.Spec.Ports {
		if portOf(port.TargetPort, pod.Spec.Containers[0]) == 0 {
			return fmt.Errorf("service %s: no container has the port %s", s.Name, port.TargetPort.String())
		}
	}
	return nil
}

func addContainers(found map[string]container, pod core.PodSpec) {
	for _, c := range pod.Containers {
		one := container{Args: c.Args, Env: map[string]string{}}
		for _, env := range c.Env {
			one.Env[env.Name] = env.Value
		}
		for _, port := range c.Ports {
			one.Port = port.ContainerPort
		}
		for _, probe := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe} {
			if probe != nil {
				one.Probes = append(one.Probes, fmt.Sprintf(":%d%s", portOf(probe.HTTPGet.Port, c), probe.HTTPGet.Path))
			}
		}
		if in := pod.SecurityContext; in != nil && in.RunAsUser != nil && in.RunAsGroup != nil {
			one.User = fmt.Sprintf("%d:%d", *in.RunAsUser, *in.RunAsGroup)
		}
		if pod.TerminationGracePeriodSeconds != nil {
			one.Grace = *pod.TerminationGracePeriodSeconds
		}
		found[c.Name] = one
	}
}

// portOf returns the number of a port that may be named, or 0.
func portOf(port intstr.IntOrString, of core.Container) int32 {
	if port.Type == intstr.Int {
		return port.IntVal
	}
	for _, p := range of.Ports {
		if p.Name == port.StrVal {
			return p.ContainerPort
		}
	}
	return 0
}
