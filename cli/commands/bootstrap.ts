/** `skein bootstrap`. */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto'
import type { Cli, Command, Group } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { startRequest } from '../shared/http.ts'
import { arg, contentOf, jsonObject, list, parseJson } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const CONFIGS = '/{domain!}/clients/configs'
const IV_BYTES = 16
const KEY_BYTES = 32
const DEADLINE_MS = 30_000
const MAX_CONFIG_BYTES = 16 * 1024 * 1024

/** Older names of the client id (`thing_id`, `mainflux_id` and so on). */
const CLIENT_ID_KEYS = ['client_id', 'thing_id', 'mainflux_id', 'magistrala_id']

function clientOf(value: Record<string, unknown>): string {
  const id = CLIENT_ID_KEYS.map((key) => value[key]).find((one) => typeof one === 'string' && one !== '')
  if (typeof id !== 'string') throw new CommandError('the JSON must contain "client_id"')
  return encodeURIComponent(id)
}

function act(words: string, summary: string): Command {
  return {
    words,
    args: '<client_id>',
    tail: 'domain',
    summary,
    example: '<client_id>',
    call: { method: 'POST', service: 'bootstrap', path: `${CONFIGS}/{client_id}/${words}` },
  }
}

export const bootstrap: Group = {
  name: 'bootstrap',
  summary: 'configurations that devices fetch',
  columns: ['client_id', 'name', 'external_id', 'state', 'channels'],
  commands: [
    {
      words: 'create',
      args: '<JSON_config>',
      tail: 'domain',
      summary: 'create a configuration for a device',
      example: `'{"external_id": "09:6:0:sb:sa", "external_key": "a-secret-of-the-factory", "name": "gateway", "channels": ["<channel_id>"], "content": "{}"}'`,
      answer: 'created',
      call: { method: 'POST', service: 'bootstrap', path: CONFIGS, body: (given) => jsonObject(given, 'JSON_config') },
    },
    {
      words: 'get all',
      args: '',
      tail: 'domain',
      summary: 'list configurations; --state 0 inactive, 1 active',
      example: '--state 1',
      call: { method: 'GET', service: 'bootstrap', path: CONFIGS, query: ['limit', 'offset', 'name', 'state'] },
    },
    {
      words: 'get',
      args: '<client_id>',
      tail: 'domain',
      summary: 'show a configuration',
      example: '<client_id>',
      call: { method: 'GET', service: 'bootstrap', path: `${CONFIGS}/{client_id}` },
    },
    {
      words: 'update config',
      args: '<JSON_config>',
      tail: 'domain',
      summary: 'change name and content',
      example: `'{"client_id": "<client_id>", "name": "gateway 2", "content": "{}"}'`,
      answer: 'ok',
      call: {
        method: 'PUT',
        service: 'bootstrap',
        path: (given) => `${CONFIGS}/${clientOf(jsonObject(given, 'JSON_config'))}`,
        body: (given) => jsonObject(given, 'JSON_config'),
      },
    },
    {
      words: 'update connection',
      args: '<client_id> <channel_ids>',
      tail: 'domain',
      summary: 'replace the channels of a configuration',
      example: `<client_id> '["<channel_id>"]'`,
      answer: 'ok',
      call: {
        method: 'PUT',
        service: 'bootstrap',
        path: `${CONFIGS}/connections/{client_id}`,
        body: (given) => ({ channels: list(given, 'channel_ids') }),
      },
    },
    {
      words: 'update certs',
      args: '<client_id> <client_cert> <client_key> <ca_cert>',
      tail: 'domain',
      summary: 'replace the certificates; PEM, or @file',
      example: '<client_id> @cert.pem @key.pem @ca.pem',
      call: {
        method: 'PATCH',
        service: 'bootstrap',
        path: `${CONFIGS}/certs/{client_id}`,
        body: (given) => ({
          client_cert: String(contentOf(arg(given, 'client_cert'))),
          client_key: String(contentOf(arg(given, 'client_key'))),
          ca_cert: String(contentOf(arg(given, 'ca_cert'))),
        }),
      },
    },
    {
      words: 'remove',
      args: '<client_id>',
      tail: 'domain',
      summary: 'delete a configuration; the client stays',
      example: '<client_id>',
      answer: 'ok',
      call: { method: 'DELETE', service: 'bootstrap', path: `${CONFIGS}/{client_id}` },
    },
    {
      words: 'whitelist',
      args: '<JSON_config>',
      tail: 'domain',
      summary: 'set the state: 1 connects the client to its channels, 0 disconnects it',
      example: `'{"client_id": "<client_id>", "state": 1}'`,
      answer: 'ok',
      call: {
        method: 'PUT',
        service: 'bootstrap',
        path: (given) => `/{domain!}/clients/state/${clientOf(jsonObject(given, 'JSON_config'))}`,
        body: (given) => ({ state: Number(jsonObject(given, 'JSON_config')['state']) }),
      },
    },
    act('enable', 'connect the client of a configuration to its channels'),
    act('disable', 'disconnect the client of a configuration from its channels'),
    {
      words: 'bootstrap secure',
      args: '<external_id> <external_key> <crypto_key>',
      tail: 'none',
      summary: 'fetch a configuration as a device does, encrypted both ways',
      example: '09:6:0:sb:sa key <32_characters>',
      run: fetchSecurely,
    },
    {
      words: 'bootstrap',
      args: '<external_id> <external_key>',
      tail: 'none',
      summary: 'fetch a configuration as a device does',
      example: '09:6:0:sb:sa key',
      call: {
        method: 'GET',
        service: 'bootstrap',
        path: '/clients/bootstrap/{external_id}',
        auth: (given) => `Client ${arg(given, 'external_key')}`,
      },
    },
  ],
}

/** AES-256 in CFB mode, the initialisation vector first, in both directions (contract 9.1). */
async function fetchSecurely(cli: Cli, given: Given): Promise<void> {
  const key = Buffer.from(arg(given, 'crypto_key'))
  if (key.length !== KEY_BYTES)
    throw new CommandError(`<crypto_key> must be ${KEY_BYTES} bytes, like SKEIN_BOOTSTRAP_ENCRYPT_KEY`)
  const iv = randomBytes(IV_BYTES)
  const cipher = createCipheriv('aes-256-cfb', key, iv)
  const sealed = Buffer.concat([iv, cipher.update(arg(given, 'external_key')), cipher.final()]).toString('hex')
  const request = {
    method: 'GET',
    service: 'bootstrap',
    path: `/clients/bootstrap/secure/${encodeURIComponent(arg(given, 'external_id'))}`,
    authorization: { header: `Client ${sealed}` },
  } as const
  const { url, headers } = await cli.prepare(request)
  const response = await startRequest({
    method: 'GET',
    url,
    headers,
    body: undefined,
    deadlineMs: DEADLINE_MS,
    isInsecure: cli.settings.isInsecure,
    signal: cli.signal,
  })
  if ((response.statusCode ?? 0) >= 400) {
    response.destroy()
    await cli.request(request)
  }
  const chunks: Buffer[] = []
  let bytes = 0
  for await (const chunk of response as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > MAX_CONFIG_BYTES) throw new CommandError('the configuration must be at most ${MAX_CONFIG_BYTES} bytes')
    chunks.push(chunk)
  }
  const body = Buffer.concat(chunks)
  const decipher = createDecipheriv('aes-256-cfb', key, body.subarray(0, IV_BYTES))
  const text = Buffer.concat([decipher.update(body.subarray(IV_BYTES)), decipher.final()]).toString('utf8')
  cli.output.data(parseJson(text, 'configuration'))
}
