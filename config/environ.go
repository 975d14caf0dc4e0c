package config

import (
	"errors"
	"net/url"
	"slices"
	"strings"
)

const envPrefix = "SEMEL_"

// envConfig names semel.toml, as --config does.
const envConfig = envPrefix + "CONFIG"

// The variables of the simple case: one model.
const (
	envURL     = envPrefix + "LLM_URL"
	envKey     = envPrefix + "LLM_KEY"
	envKeyFile = envPrefix + "LLM_KEY_FILE"
	envModel   = envPrefix + "LLM_MODEL"
)

var modelEnv = []string{envURL, envKey, envKeyFile, envModel}

// environ is what the environment says.
type environ struct {
	values map[string]value // by key
	file   string           // SEMEL_CONFIG
	model  *table           // of SEMEL_LLM_URL and its kin, nil without
}

// readEnviron takes every variable that begins with SEMEL_; one that is not
// known is an error.
func readEnviron(list []string) (environ, error) {
	env := environ{values: map[string]value{}}
	byName := map[string]string{}
	known := append([]string{envConfig}, modelEnv...)
	llm := map[string]string{}
	for _, k := range configKeys {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
		byName[name] = k.name
		known = append(known, name)
	}
	var wrong findings
	for _, entry := range list {
		name, text, _ := strings.Cut(entry, "=")
		key, isKey := byName[name]
		switch {
		case !strings.HasPrefix(name, envPrefix):
		case isKey:
			env.values[key] = value{val: text, text: true, origin: "env " + name}
		case name == envConfig:
			if text == "" {
				wrong.add("%s must not be empty", name)
			}
			env.file = text
		case slices.Contains(modelEnv, name):
			if text != "" { // compose files pass empty ones for those that are not set
				llm[name] = text
			}
		default:
			wrong.add("unknown environment variable %s; the nearest known one is %s", name, nearest(name, known))
		}
	}
	if len(llm) > 0 {
		m, errs := environModel(llm)
		env.model = &m
		wrong = append(wrong, errs...)
	}
	return env, errors.Join(wrong...)
}

// environModel is the model that the variables of the simple case describe, as a
// [[models]] would.
func environModel(given map[string]string) (table, findings) {
	var wrong findings
	for _, name := range []string{envURL, envModel} {
		if given[name] == "" {
			for _, other := range modelEnv {
				if given[other] != "" {
					wrong.add("%s is missing: %s says nothing without it", name, other)
					break
				}
			}
		}
	}
	if given[envKey] != "" && given[envKeyFile] != "" {
		wrong.add("%s and %s are both given", envKey, envKeyFile)
	}
	t := table{origin: "env " + envURL}
	add := func(key, from, text string) {
		if text != "" {
			t.settings = append(t.settings, setting{key, value{val: text, text: true, origin: "env " + from, secret: isSecret(key, text)}})
		}
	}
	provider := ProviderOpenAI
	if isAnthropic(given[envURL]) {
		provider = ProviderAnthropic
	}
	add("name", envModel, given[envModel])
	add("provider", envURL, provider)
	add("url", envURL, given[envURL])
	add("key", envKey, given[envKey])
	add("key_file", envKeyFile, given[envKeyFile])
	return t, wrong
}

func isAnthropic(rawURL string) bool {
	u, err := url.Parse(rawURL)
	if err != nil {
		return false
	}
	host := strings.ToLower(u.Hostname())
	return host == "anthropic.com" || strings.HasSuffix(host, ".anthropic.com")
}
