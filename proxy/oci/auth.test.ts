import { describe, expect, it } from 'vitest'
import { mayKnowCredentials } from './auth.ts'

const scopeAt = (baseUrl: string) => ({
  registry: 'r',
  repository: 'a/b',
  baseUrl: new URL(baseUrl),
  actions: 'pull' as const,
})
const may = (base: string, realm: string) => mayKnowCredentials(scopeAt(base), new URL(realm))

describe('the credentials of a registry', () => {
  it('go to whatever realm it names over TLS, over TLS', () => {
    expect(may('https://registry-1.docker.io/', 'https://auth.docker.io/token')).toBe(true)
    expect(may('https://ghcr.io/', 'https://ghcr.io/token')).toBe(true)
  })

  it('never leave TLS', () => {
    expect(may('https://ghcr.io/', 'http://ghcr.io/token')).toBe(false)
    expect(may('https://ghcr.io/', 'http://auth.example.com/token')).toBe(false)
  })

  it('stay on the host of a registry of plain HTTP, where anybody on the way could name a realm', () => {
    expect(may('http://127.0.0.1:5000/', 'http://127.0.0.1:5001/token')).toBe(true)
    expect(may('http://registry.lan/', 'https://registry.lan/token')).toBe(true)
    expect(may('http://registry.lan/', 'http://auth.lan/token')).toBe(false)
    expect(may('http://registry.lan/', 'https://auth.example.com/token')).toBe(false)
  })
})
