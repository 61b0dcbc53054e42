package doctor

// CheckVersion returns the check of a server whose INFO has these fields, or none at all.
func CheckVersion(info map[string]string) []Check {
	s := &Server{facts: info}
	s.checkVersion()
	return s.Checks
}
