package redisstore

var (
	KindOf  = kindOf
	Bounded = bounded
)
