package guardhttp

import (
	"bytes"
	"errors"
	"mime"
	"mime/multipart"
	"net/http"
	"net/url"
)

var errNoForm = errors.New("the body is no form")

// formValues returns the values of a field of the form in the body.
func formValues(r *http.Request, field string) ([]string, error) {
	all, err := wholeBody(r)
	if err != nil {
		return nil, err
	}
	if parsed(r, all) {
		values := r.PostForm[field]
		if len(values) == 0 && r.MultipartForm != nil {
			values = r.MultipartForm.Value[field]
		}
		return values, nil
	}
	kind, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, errNoForm
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		values, err := url.ParseQuery(string(all))
		return values[field], err
	case "multipart/form-data":
		form, err := multipart.NewReader(bytes.NewReader(all), parameters["boundary"]).ReadForm(int64(len(all)))
		if err != nil {
			return nil, err
		}
		defer form.RemoveAll() //nolint:errcheck // all of it was in memory
		return form.Value[field], nil
	}
	return nil, errNoForm
}

// parsed reports whether code in front of the middleware has parsed the form, so that its content
// is no longer in the body. http.Request.PostFormValue does that, for example. A body that was put
// back counts as it is.
func parsed(r *http.Request, body []byte) bool {
	form := r.MultipartForm
	if form == nil {
		return len(r.PostForm) > 0 && len(body) == 0
	}
	if len(r.PostForm)+len(form.Value)+len(form.File) == 0 {
		return false // http.Request.MultipartReader has set it
	}
	_, parameters, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // none on an error
	return !hasEnd(body, parameters)
}

// hasEnd reports whether a multipart body has its last boundary. parameters are those of its
// Content-Type.
func hasEnd(body []byte, parameters map[string]string) bool {
	return bytes.Contains(body, []byte("--"+parameters["boundary"]+"--"))
}
