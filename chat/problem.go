package chat

// Title returns the short, stable title of a problem code.
func Title(code string) string {
	if t, ok := titles[code]; ok {
		return t
	}
	return "The request failed"
}

// titles of every problem code there is, for clients and for pages.
var titles = map[string]string{
	// refused before acceptance
	"bad_request":           "The request cannot be understood",
	"verifying":             "A check is running already",
	"backing_up":            "A backup is being made already",
	"lab_busy":              "A run of the lab is under way",
	"lab_off":               "The lab is switched off",
	"key_missing":           "A request id is needed",
	"key_invalid":           "The request id cannot be used",
	"key_mismatch":          "Two different request ids were sent",
	"key_reused":            "This request id was used for something else",
	"key_expired":           "This request id is too old to be run",
	"key_from_future":       "The time inside the request id lies ahead",
	"restored_gap":          "It may have been answered before this server was restored",
	"session_invalid":       "The conversation id cannot be used",
	"conversation_gone":     "The conversation is deleted",
	"parent_not_found":      "The message this follows is not there",
	"model_unknown":         "There is no such model",
	"too_large":             "Too large",
	"header_too_large":      "The headers are too large",
	"unsupported_media":     "This media type is not understood",
	"attachment_unknown":    "An attachment is not here",
	"attachments_too_large": "The attachments are too large together",
	"too_many_attachments":  "Too many attachments",
	"file_too_large":        "The file is too large",
	"file_empty":            "The file is empty",
	"file_kind":             "This kind of file is not taken",
	"images_not_taken":      "The model takes no images",
	"not_acceptable":        "None of the accepted media types can be given",
	"rate_limited":          "Too many new questions",
	"overloaded":            "Too many questions are waiting",
	"shutting_down":         "The server is stopping",
	"outcome_open":          "It is not known whether this was stored",
	"disk_full":             "The disk is full",
	"safe_mode":             "The database is only read",
	"storage_failed":        "It could not be stored",
	"not_found":             "Not found",
	"method_not_allowed":    "The method is not allowed here",
	"forbidden_origin":      "Refused: it came from another site",
	"forbidden_host":        "Refused: this host name is not served here",
	"forwarded_refused":     "Refused: it came through a proxy",
	"busy":                  "An answer is running",
	"not_ready":             "Not ready",
	"internal":              "Something went wrong here",
	"stale_attempt":         "This was meant for another attempt",
	"already_decided":       "It is decided otherwise",
	"digest_mismatch":       "The verdict is about something else",
	"not_now":               "That cannot be done as it stands",
	"other_request":         "The effect is of another request",
	"signature_invalid":     "The signature is not right",
	"signed_out":            "Nobody is signed in",
	"credentials_wrong":     "The name or the password is wrong",
	"too_many_tries":        "Too many tries",
	"forbidden_role":        "This is for other roles",
	"forbidden_scope":       "The key is not for this",
	"setup_needed":          "This server is not set up yet",
	// accepted and failed
	"stopped":              "Stopped",
	"interrupted":          "The answer was interrupted",
	"restored":             "The server was restored from a backup",
	"line_lost":            "The line to the model was lost",
	"provider_unreachable": "The model cannot be reached",
	"provider_busy":        "The model is busy",
	"provider_refused":     "The model refused the call",
	"provider_error":       "The model failed",
	"content_refused":      "The model refused the content",
	"context_too_long":     "The conversation is too long for the model",
	"run_cancelled":        "The answer was cancelled at the provider",
	"run_forgotten":        "The provider does not know this answer any more",
	"run_unavailable":      "The answer cannot be fetched from the provider",
	"run_differs":          "The provider gives another text than before",
	"answer_too_long":      "The answer is too long",
	"first_token_timeout":  "The model did not begin to answer in time",
	"idle_timeout":         "The model fell silent",
	"model_gone":           "The model is no longer configured",
}

// NewProblem returns the problem document for a code.
func NewProblem(status int, code, detail string, retry Retry) Problem {
	return Problem{
		Type: "urn:semel:problem:" + code, Title: Title(code), Status: status,
		Detail: detail, Code: code, Retry: retry,
	}
}

// Problem returns what a client is told of a failed request: 502, 503, 504 or
// 422, never the provider's own status, and always with state failed.
func (f Failure) Problem(requestID string) Problem {
	p := NewProblem(f.status(), f.Code, f.Detail, f.Retry)
	p.RequestID, p.State, p.Outcome = requestID, StateFailed, f.Outcome
	return p
}

func (f Failure) status() int {
	switch f.Code {
	case "provider_busy", "provider_unreachable":
		return 503
	case "first_token_timeout", "idle_timeout":
		return 504
	case "content_refused", "context_too_long", "provider_refused", "model_gone", "stopped":
		return 422
	}
	return 502
}
