import { describe, expect, it } from 'vitest'
import { parsePullPath, repositoryNameOf } from './distribution.ts'

const digest = `sha256:${'a1'.repeat(32)}`
const hex = 'a1'.repeat(32)

describe('the name of a module', () => {
  it.each([
    ['ghcr.io/acme/add@sha256:1', 'ghcr.io/acme/add'],
    ['127.0.0.1:5000/m@sha256:1', '127.0.0.1_5000/m'],
    ['localhost/m@sha256:1', 'localhost/m'],
    ['[::1]:5000/m@sha256:1', '0-0-0-0-0-0-0-1_5000/m'],
    ['[2001:db8::7]/a/b@sha256:1', '2001-db8-0-0-0-0-0-7/a/b'],
    ['', `uploads/${hex}`],
  ])('of %s is a valid repository name', (reference, name) => {
    expect(repositoryNameOf({ digest, reference })).toBe(name)
    expect(parsePullPath(`/v2/${name}/blobs/${digest}`)).toEqual({ name, kind: 'blobs', reference: digest })
    expect(parsePullPath(`/v2/${name}/referrers/${digest}`)).toEqual({ name, kind: 'referrers', reference: digest })
  })
})

describe('a path', () => {
  it.each([
    '/v2/',
    '/v2/m',
    '/v2/m/tags/list',
    '/v2/m/uploads/x',
    '/v2//blobs/x',
    '/v2/../../etc/blobs/x',
    '/v2/M/blobs/x',
    '/v2/m/blobs/',
    '/v2/m/blobs/a/b',
    '/v2/m/blobs/..%2fx',
    `/v2/${'m'.repeat(256)}/blobs/x`,
    `/v2/m/manifests/${'x'.repeat(129)}`,
  ])('%s is not a pull path', (path) => {
    expect(parsePullPath(path)).toBeUndefined()
  })
})
