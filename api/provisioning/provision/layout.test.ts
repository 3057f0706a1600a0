/** Layout files: errors at the start, and the effect of settings (contract 9.2). */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import { readConfig } from '#core/config/index.ts'
import { PROVISION_SETTINGS } from './config.ts'
import { loadLayout } from './layout.ts'

let folder: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'skein-layout-'))
})
afterAll(() => rmSync(folder, { recursive: true }))

/** Loads a layout file with this text, or no file. */
async function load(text: string | undefined, environment: Record<string, string> = {}) {
  const path = join(folder, 'layout.toml')
  if (text !== undefined) writeFileSync(path, text)
  const layout = text === undefined ? {} : { SKEIN_PROVISION_LAYOUT: path }
  return await loadLayout(readConfig(PROVISION_SETTINGS, { ...layout, ...environment }))
}

const DEVICE = '[[clients]]\n[clients.metadata]\nexternal_id = ""\n'

it.each([
  ['invalid TOML', 'clients = [', 'invalid TOML in'],
  ['no clients', 'clients = []', '[[clients]]'],
  ['no channels', 'channels = []', '[[channels]]'],
  ['an invalid name', '[[clients]]\nname = 7', 'name of [[clients]] 1'],
  ['two devices', DEVICE + DEVICE, 'at most one client'],
  ['an invalid flag', '[bootstrap]\nprovision = "yes"', 'must be true or false'],
  ['an invalid duration', '[cert]\nttl = "long"', 'must be a duration'],
  ['a user without password', '[server]\nemail = "a@b.c"', 'must be set together'],
])('a layout with %s is rejected', async (_what, text, message) => {
  await expect(load(text)).rejects.toThrow(message)
})

it('the error of an invalid file does not contain a password', async () => {
  await expect(load('[server]\npass = "hunter2')).rejects.toThrow(/^(?!.*hunter2).*invalid TOML/s)
})

it.each([
  ['SKEIN_PROVISION_BS_CONFIG_PROVISIONING', 'perhaps'],
  ['SKEIN_PROVISION_CERTS_HOURS_VALID', 'long'],
  ['SKEIN_PROVISION_BS_CONTENT', '[1]'],
  ['SKEIN_PROVISION_USER', 'jane'],
])('the error of an invalid %s contains its name', async (name, value) => {
  await expect(load(undefined, { [name]: value })).rejects.toThrow(name)
})

it('settings override values of the file, the file overrides settings for the content', async () => {
  const text =
    '[bootstrap]\nautowhite_list = true\n[bootstrap.content]\na = 1\n[server]\ndomain_id = "d1"\nmg_user = "file"\nmg_pass = "p"'
  const layout = await load(text, {
    SKEIN_PROVISION_BS_AUTO_WHITELIST: 'false',
    SKEIN_PROVISION_DOMAIN_ID: 'd2',
    SKEIN_PROVISION_USER: 'env',
    SKEIN_PROVISION_BS_CONTENT: '{"b":2}',
  })
  expect(layout).toMatchObject({ isWhitelisted: false, domainId: 'd2', content: { a: 1 } })
  expect(layout.credentials).toMatchObject({ identity: 'env' })
})

it('an API key has precedence over user and password', async () => {
  const layout = await load('[server]\napi_key = "k"\nemail = "e"\npass = "p"')
  expect(Object.keys(layout.credentials ?? {})).toEqual(['apiKey'])
})

it('the default layout has one client and the channels control and data', async () => {
  const layout = await load(undefined)
  expect(layout.clients).toHaveLength(1)
  expect(layout.channels.map(({ metadata }) => metadata['type'])).toEqual(['control', 'data'])
  expect(layout).toMatchObject({
    hasBootstrap: true,
    isWhitelisted: true,
    hasCertificates: false,
    credentials: undefined,
  })
})
