import { describe, expect, it } from 'vitest'
import { canReceiveCredentials } from './auth.ts'

const scopeAt = (baseUrl: string) => ({
  registry: 'r',
  repository: 'a/b',
  baseUrl: new URL(baseUrl),
  actions: 'pull' as const,
})
const may = (base: string, realm: string) => canReceiveCredentials(scopeAt(base), new URL(realm))

describe('the credentials of a registry', () => {
  it('are sent to any realm of a TLS registry, over TLS', () => {
    expect(may('https://registry-1.docker.io/', 'https://auth.docker.io/token')).toBe(true)
    expect(may('https://ghcr.io/', 'https://ghcr.io/token')).toBe(true)
  })

  it('are never sent without TLS to a realm of a TLS registry', () => {
    expect(may('https://ghcr.io/', 'http://ghcr.io/token')).toBe(false)
    expect(may('https://ghcr.io/', 'http://auth.example.com/token')).toBe(false)
  })

  it('stay on the host of a plain HTTP registry, because an intermediary could change the realm', () => {
    expect(may('http://127.0.0.1:5000/', 'http://127.0.0.1:5001/token')).toBe(true)
    expect(may('http://registry.lan/', 'https://registry.lan/token')).toBe(true)
    expect(may('http://registry.lan/', 'http://auth.lan/token')).toBe(false)
    expect(may('http://registry.lan/', 'https://auth.example.com/token')).toBe(false)
  })
})
