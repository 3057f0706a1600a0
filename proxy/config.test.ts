import { describe, expect, it } from 'vitest'
import { readConfig } from '#core/config/index.ts'
import { PROXY_SETTINGS, checkProxyConfig } from './config.ts'

const check = (environment: Record<string, string>) => checkProxyConfig(readConfig(PROXY_SETTINGS, environment))

describe('the settings of the proxy', () => {
  it('are all optional', () => {
    expect(check({})).toMatchObject({ configured: undefined, credentials: undefined })
  })

  it.each([
    ['docker.io', 'docker.io', undefined],
    ['https://index.docker.io/v1/', 'docker.io', 'https:'],
    ['https://ghcr.io/', 'ghcr.io', 'https:'],
    ['ghcr.io:443', 'ghcr.io:443', undefined],
    ['http://127.0.0.1:5000', '127.0.0.1:5000', 'http:'],
    ['HTTP://LOCALHOST:5000', 'localhost:5000', 'http:'],
  ])('take %s as the registry', (url, name, scheme) => {
    expect(check({ PROXY_REGISTRY_URL: url }).configured).toEqual({ name, scheme })
  })

  it.each<[Record<string, string>, RegExp]>([
    [{ PROXY_REGISTRY_URL: 'https://ghcr.io/acme' }, /PROXY_REGISTRY_URL must be a registry/],
    [{ PROXY_REGISTRY_URL: 'ftp://ghcr.io' }, /PROXY_REGISTRY_URL must be a registry/],
    [{ PROXY_REGISTRY_URL: 'https://user:pw@ghcr.io' }, /PROXY_REGISTRY_URL must be a registry/],
    [{ PROXY_REGISTRY_URL: 'http://registry.lan:5000' }, /add registry\.lan:5000 to SKEIN_PROXY_HTTP_HOSTS/],
    [{ PROXY_AUTHENTICATE: 'true' }, /PROXY_AUTHENTICATE requires/],
    [
      { PROXY_AUTHENTICATE: 'true', PROXY_REGISTRY_URL: 'ghcr.io', PROXY_REGISTRY_USERNAME: 'u' },
      /PROXY_REGISTRY_PASSWORD/,
    ],
    [{ SKEIN_PROXY_HTTP_HOSTS: 'http://registry.lan' }, /host or host:port/],
    [{ SKEIN_PROXY_CACHE_BYTES: '1MiB' }, /at least 67108864/],
    [{ SKEIN_HOST: '0.0.0.0' }, /SKEIN_GRPC_INSECURE/],
    [{ SKEIN_GRPC_TLS_CERT: '/c.pem' }, /must be set together/],
  ])('that contradict each other are refused with what to do: %o', (environment, message) => {
    expect(() => check(environment)).toThrow(message)
  })

  it('allow plain HTTP to a listed registry, and other addresses with TLS or an explicit opt-out', () => {
    expect(
      check({ PROXY_REGISTRY_URL: 'http://registry:5000', SKEIN_PROXY_HTTP_HOSTS: 'registry' }).configured?.scheme,
    ).toBe('http:')
    check({ SKEIN_HOST: '0.0.0.0', SKEIN_GRPC_INSECURE: 'true' })
    check({ SKEIN_HOST: '0.0.0.0', SKEIN_GRPC_TLS_CERT: '/c.pem', SKEIN_GRPC_TLS_KEY: '/k.pem' })
  })

  it('never show the password', () => {
    const config = readConfig(PROXY_SETTINGS, { PROXY_REGISTRY_PASSWORD: 'hunter22' })
    expect(JSON.stringify(config)).not.toContain('hunter22')
    expect(() => check({ PROXY_REGISTRY_URL: 'https://user:hunter22@ghcr.io' })).toThrow(/^((?!hunter22).)*$/)
  })
})
