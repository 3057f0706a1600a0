/** Keys of the installation: one per purpose, values bound to their context, a key file that is complete or absent. */
import { randomBytes } from 'node:crypto'
import { chmod, mkdtemp, readFile, readdir, rm, stat, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { Secret } from '../config/index.ts'
import { kindOf } from '../errors/index.ts'
import { createKeyring, loadMasterKey } from './index.ts'

const master = randomBytes(32)
const keyring = createKeyring(master)

describe('a keyring', () => {
  test('opens a value only with the same purpose and context', () => {
    const sealed = keyring.seal('client secret', 'client 7', 'hunter2 ☃')
    expect(keyring.open('client secret', 'client 7', sealed)).toBe('hunter2 ☃')
    const refused = (work: () => string) => {
      expect(work).toThrow('failed to decrypt a stored secret with the secret key')
    }
    refused(() => keyring.open('client secret', 'client 8', sealed))
    refused(() => keyring.open('task secret', 'client 7', sealed))
    refused(() => createKeyring(randomBytes(32)).open('client secret', 'client 7', sealed))
    for (let index = 0; index < sealed.length; index++) {
      const changed = Buffer.from(sealed)
      changed[index] = (changed[index] ?? 0) ^ 1
      refused(() => keyring.open('client secret', 'client 7', changed))
    }
    for (const length of [0, 5, 12, 20, 28])
      refused(() => keyring.open('client secret', 'client 7', sealed.subarray(0, length)))
  })

  test('never seals the same value to the same bytes', () => {
    expect(keyring.seal('p', 'c', 'text')).not.toEqual(keyring.seal('p', 'c', 'text'))
  })

  test('finds a secret by a digest that differs by purpose and key', () => {
    expect(keyring.mac('a', 'text')).toEqual(createKeyring(master).mac('a', 'text'))
    expect(keyring.mac('a', 'text')).toHaveLength(16)
    expect(keyring.mac('b', 'text')).not.toEqual(keyring.mac('a', 'text'))
    expect(createKeyring(randomBytes(32)).mac('a', 'text')).not.toEqual(keyring.mac('a', 'text'))
  })

  test('has a fingerprint that does not reveal the key', () => {
    expect(keyring.fingerprint).toBe(createKeyring(master).fingerprint)
    expect(keyring.fingerprint).not.toBe(createKeyring(randomBytes(32)).fingerprint)
    expect(master.toString('hex')).not.toContain(keyring.fingerprint)
  })
})

describe('the secret key of an installation', () => {
  let dataDir: string
  beforeEach(async () => {
    dataDir = await mkdtemp(join(tmpdir(), 'skein-key-'))
    return () => rm(dataDir, { recursive: true })
  })
  const load = (configured?: string, isEmbedded = true) =>
    loadMasterKey({ configured: configured === undefined ? undefined : new Secret(configured), dataDir, isEmbedded })

  test('is created in the data folder once, readable by its owner only, and reused', async () => {
    const keys = await Promise.all([load(), load(), load()])
    expect(new Set(keys.map((key) => key.toString('hex'))).size).toBe(1)
    expect(keys[0]).toHaveLength(32)
    expect(await load()).toEqual(keys[0])
    expect(await readdir(dataDir)).toEqual(['secret.key'])
    expect((await stat(join(dataDir, 'secret.key'))).mode & 0o777).toBe(0o600)
  })

  test('is rejected when other users may read it, with the command that fixes it', async () => {
    const key = await load()
    const path = join(dataDir, 'secret.key')
    for (const mode of [0o640, 0o604, 0o666]) {
      await chmod(path, mode)
      await expect(load()).rejects.toThrow(`other users may read the secret key; run chmod 600 ${path}`)
    }
    await chmod(path, 0o600)
    expect(await load()).toEqual(key)
  })

  test('is rejected when its file is damaged, and the file is unchanged', async () => {
    const path = join(dataDir, 'secret.key')
    await writeFile(path, '', { mode: 0o600 })
    await expect(load()).rejects.toThrow(`${path} must be 32 bytes in base64`)
    expect(await readFile(path, 'utf8')).toBe('')
  })

  test('comes from the setting when it is set, and no file is written', async () => {
    expect(await load(`${master.toString('base64')}\n`)).toEqual(master)
    expect(await load(master.toString('base64url'), false)).toEqual(master)
    expect(await readdir(dataDir)).toEqual([])
  })

  test.each([
    'hunter2',
    randomBytes(31).toString('base64'),
    randomBytes(33).toString('base64'),
    master.toString('hex'),
    `${master.toString('base64')}!`,
  ])('is rejected in another form, and not repeated: case %#', async (configured) => {
    const refusal: unknown = await load(configured).catch((error: unknown) => error)
    expect(kindOf(refusal)).toBe('malformed')
    expect(String(refusal)).toContain('SKEIN_SECRET_KEY must be 32 bytes in base64')
    expect(String(refusal)).not.toContain(configured)
  })

  test('is required with an external database', async () => {
    await expect(load(undefined, false)).rejects.toThrow('SKEIN_SECRET_KEY is required with SKEIN_DATABASE_URL')
    expect(await readdir(dataDir)).toEqual([])
  })
})
