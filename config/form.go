package config

import "errors"

// ErrMissing: a key that is needed was not given.
var ErrMissing = errors.New("is missing")

// CheckModel returns the model that a person described outside of a file, by the
// same keys and under the same rules as [[models]], or what is wrong with it, by
// key. An empty value counts as not given.
func CheckModel(given map[string]string, presets []Preset) (Model, map[string]error) {
	wrong := map[string]error{}
	t := table{origin: "the form"}
	for _, k := range modelKeys {
		text := given[k.name]
		if text == "" {
			continue
		}
		v := value{val: text, text: true, origin: t.origin, secret: isSecret(k.name, text)}
		if err := k.set(new(Model), v); err != nil {
			wrong[k.name] = err
		}
		t.settings = append(t.settings, setting{k.name, v})
	}
	for name := range given {
		if knownKey(modelKeys, name) == nil {
			panic("config: no key " + name)
		}
	}
	needs := func(name string, there bool) {
		if !there {
			wrong[name] = ErrMissing
		}
	}
	url := given["url"]
	if preset := given["preset"]; preset != "" {
		p, err := findPreset(presets, value{val: preset})
		if err != nil {
			wrong["preset"] = err
		}
		if url == "" {
			url = p.URL
		}
	} else {
		needs("provider", given["provider"] != "")
	}
	needs("name", given["name"] != "")
	needs("url", url != "" || given["provider"] == ProviderDemo)
	priced := given["price.input"] != "" || given["price.output"] != "" || given["price.cached"] != ""
	needs("price.input", !priced || given["price.input"] != "")
	needs("price.output", !priced || given["price.output"] != "")
	if len(wrong) > 0 {
		return Model{}, wrong
	}
	m, _, rest := loadModel(t, "", "model", presets)
	if len(rest) > 0 {
		return Model{}, map[string]error{"": errors.Join(rest...)}
	}
	return m, nil
}
