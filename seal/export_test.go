package seal

// These functions give tests access to the format and to cached keys.

var (
	KeyHeader = keyHeader
	Binding   = func(s Stream, version uint32) []byte { return binding(ofPayload, s, version) }
)

// SealWith seals with a given key and nonce.
func SealWith(s Stream, version uint32, key [dataKeySize]byte, nonce [nonceSize]byte, payload []byte) []byte {
	k, err := newDataKey(s, version, key[:])
	if err != nil {
		panic(err)
	}
	sealed, _ := k.sealWith(nonce, payload)
	return sealed
}

// KeyVersion is the version of the key that has sealed a payload.
func KeyVersion(sealed []byte) uint32 {
	m, err := parse(sealed)
	if err != nil {
		panic(err)
	}
	return m.keyVersion
}

// Relabel changes the key version of a sealed payload.
func Relabel(sealed []byte, version byte) []byte {
	encoded, _ := unwrapJSON(sealed)
	raw, _ := encoding.AppendDecode(nil, encoded)
	raw[headerSize-1] = version
	return wrapJSON(raw)
}

// Cached returns a function for each key in memory, which reports whether the key is
// wiped.
func (o *Opener) Cached() []func() bool {
	o.cache.mu.Lock()
	defer o.cache.mu.Unlock()
	var cached []func() bool
	for _, element := range o.cache.entries {
		key := element.Value.(*entry).key
		cached = append(cached, func() bool {
			key.using.RLock()
			defer key.using.RUnlock()
			return key.aead == nil
		})
	}
	return cached
}
