package llm

// Quirks are the ways in which a provider differs from others of its wire format.
type Quirks struct{}
