package config

import (
	"errors"
	"slices"
	"strings"
)

const envPrefix = "SEMEL_"

// envConfig names semel.toml, as --config does.
const envConfig = envPrefix + "CONFIG"

// laterEnv belong to the models of a later version.
var laterEnv = []string{"SEMEL_LLM_URL", "SEMEL_LLM_KEY", "SEMEL_LLM_KEY_FILE", "SEMEL_LLM_MODEL"}

// environ is what the environment says.
type environ struct {
	values map[string]value // by key
	file   string           // SEMEL_CONFIG
}

// readEnviron takes every variable that begins with SEMEL_; one that is not
// known is an error.
func readEnviron(list []string) (environ, error) {
	env := environ{values: map[string]value{}}
	byName := map[string]string{}
	known := append([]string{envConfig}, laterEnv...)
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
		case slices.Contains(laterEnv, name):
			if text != "" {
				wrong.add(`%s: %w: it has only the model "demo"`, name, errNotSupported)
			}
		default:
			wrong.add("unknown environment variable %s; the nearest known one is %s", name, nearest(name, known))
		}
	}
	return env, errors.Join(wrong...)
}
