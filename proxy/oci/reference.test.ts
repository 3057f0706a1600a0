import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { formatReference, parseReference, pinnedReference } from './reference.ts'

const DIGEST = `sha256:${'a'.repeat(64)}`

describe('parseReference', () => {
  it.each([
    ['ghcr.io/acme/filter:1.2', 'ghcr.io', 'acme/filter', '1.2'],
    ['oci://ghcr.io/acme/filter:1.2', 'ghcr.io', 'acme/filter', '1.2'],
    ['localhost/filter', 'localhost', 'filter', 'latest'],
    ['localhost:5000/a/b/c', 'localhost:5000', 'a/b/c', 'latest'],
    ['REGISTRY.example.com/a', 'registry.example.com', 'a', 'latest'],
    ['[::1]:5000/filter:x', '[::1]:5000', 'filter', 'x'],
    ['filter', 'r.example.com', 'filter', 'latest'],
    ['filter:2', 'r.example.com', 'filter', '2'],
    ['acme/filter:2', 'r.example.com', 'acme/filter', '2'],
    ['a.b:2', 'r.example.com', 'a.b', '2'],
    ['docker.io/hello', 'docker.io', 'library/hello', 'latest'],
    ['index.docker.io/acme/hello', 'docker.io', 'acme/hello', 'latest'],
  ])('reads %s', (text, registry, repository, tag) => {
    expect(parseReference(text, 'r.example.com')).toEqual({ registry, repository, tag, digest: undefined })
  })

  it('prefers a digest to a tag', () => {
    const reference = parseReference(`ghcr.io/acme/filter:1.2@${DIGEST}`, undefined)
    expect(reference.digest).toBe(DIGEST)
    expect(formatReference(reference)).toBe(`ghcr.io/acme/filter@${DIGEST}`)
  })

  it.each([
    ['', /repository/],
    ['Filter', /repository/],
    ['a//b', /repository/],
    ['../../etc/passwd', /registry/],
    ['a/../b', /repository/],
    ['filter:', /tag/],
    ['filter:a/b', /registry/],
    [`filter:${'x'.repeat(129)}`, /tag/],
    ['filter@sha256:abc', /digest/],
    [`filter@sha512:${'a'.repeat(128)}`, /digest/],
    [`filter@${DIGEST}@${DIGEST}`, /digest/],
    ['https://ghcr.io/a', /scheme/],
    ['user:pw@ghcr.io/a', /digest/],
    ['ghcr.io:port/a', /registry/],
    ['ghcr.io /a', /registry/],
    ['x'.repeat(2000), /1024/],
    [`ghcr.io/${'x'.repeat(300)}`, /255/],
    ['filter\n', /repository/],
    ['filter\u0000', /repository/],
  ])('refuses an invalid reference with the reason (%#)', (text, message) => {
    expect(() => parseReference(text, 'r.example.com')).toThrow(message)
  })

  it('requires a registry if none is configured', () => {
    expect(() => parseReference('filter', undefined)).toThrow(/PROXY_REGISTRY_URL/)
  })

  it('parses its own pinned form, and throws only refusals', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 60 }), (text) => {
        let reference
        try {
          reference = parseReference(text, 'r.example.com')
        } catch (error) {
          expect(error).toMatchObject({ kind: 'malformed' })
          return
        }
        expect(parseReference(pinnedReference(reference, DIGEST), undefined)).toMatchObject({
          registry: reference.registry,
          repository: reference.repository,
          digest: DIGEST,
        })
      }),
    )
  })
})
