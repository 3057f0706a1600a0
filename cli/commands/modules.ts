/** `skein modules`. */
import { stat } from 'node:fs/promises'
import { basename } from 'node:path'
import type { Cli, Group, Reply } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { createProgress, formatBytes } from '../shared/progress.ts'
import { arg, isRecord, json } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const SERVICE = 'manager'
/** A registry may be slow to take a large module. */
const PUSH_SILENCE_MS = 300_000

/** The domain in use, where there is one. */
const ofDomain = ({ domain }: Given) => ({ domain_id: domain })

export const modules: Group = {
  name: 'modules',
  summary: 'modules in registries and caches',
  columns: ['digest', 'source', 'size', 'reference', 'signed', 'last_used_at'],
  commands: [
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list the modules that tasks of your domains use',
      example: '',
      call: { method: 'GET', service: SERVICE, path: '/modules', auth: 'optional', query: ['limit', 'offset'] },
    },
    {
      words: 'get',
      args: '<digest>',
      tail: 'user',
      summary: 'show a module: where it is cached, what it exports',
      example: '<digest>',
      call: { method: 'GET', service: SERVICE, path: '/modules/{digest}', auth: 'optional' },
    },
    {
      words: 'pull',
      args: '<reference>',
      tail: 'domain',
      summary: 'fetch a module ahead of its use, to the proxy and with --workers all to the workers',
      example: '<reference>',
      flags: ['workers'],
      call: {
        method: 'POST',
        service: SERVICE,
        path: '/modules',
        auth: 'optional',
        body: (given) => {
          const workers = given.flags.get('workers')
          return {
            reference: arg(given, 'reference'),
            ...ofDomain(given),
            ...(workers === undefined ? {} : { workers: workers === 'all' ? workers : workers.split(',') }),
          }
        },
      },
    },
    {
      words: 'ticket',
      args: '<digest>',
      tail: 'domain',
      summary: 'get a ticket with which skopeo and oras pull a module from the proxy, for an hour',
      example: '<digest>',
      call: {
        method: 'POST',
        service: SERVICE,
        path: '/modules/tickets',
        auth: 'optional',
        body: (given) => ({ digest: arg(given, 'digest'), ...ofDomain(given) }),
      },
    },
    {
      words: 'push',
      args: '<file> <reference>',
      tail: 'domain',
      summary: 'push a module into a registry',
      example: 'add.wasm <reference>',
      flags: ['registry-user'],
      run: push,
    },
    {
      words: 'delete',
      args: '<digest>',
      tail: 'domain',
      summary: 'forget a module of a registry',
      example: '<digest>',
      answer: 'ok',
      call: { method: 'DELETE', service: SERVICE, path: '/modules/{digest}', auth: 'optional', parameters: ofDomain },
    },
    {
      words: 'policy get',
      args: '',
      tail: 'domain',
      summary: 'show what is asked of the signatures of modules',
      example: '',
      call: { method: 'GET', service: SERVICE, path: '/modules/policy', auth: 'optional', parameters: ofDomain },
    },
    {
      words: 'policy set',
      args: '<JSON_policy>',
      tail: 'domain',
      summary: 'ask for signatures: off, warn or require, and the public keys that count',
      example: `'{"signatures": "off"}'`,
      call: {
        method: 'PUT',
        service: SERVICE,
        path: '/modules/policy',
        auth: 'optional',
        parameters: ofDomain,
        body: (given) => json(given, 'JSON_policy'),
      },
    },
  ],
}

async function push(cli: Cli, given: Given): Promise<void> {
  const file = arg(given, 'file')
  const { size } = await stat(file).catch((error: Error) => {
    throw new CommandError(`cannot read ${file}: ${error.message}`)
  })
  const progress = createProgress(cli.output, `pushing ${basename(file)}`, formatBytes)
  try {
    const reply = await cli.request({
      method: 'PUT',
      service: SERVICE,
      path: '/modules',
      query: { reference: arg(given, 'reference'), ...ofDomain(given) },
      file,
      contentType: 'application/wasm',
      authorization: 'optional',
      token: given.credential,
      headers: registryHeaders(cli, given),
      deadlineMs: PUSH_SILENCE_MS,
      onSent: (bytes) => progress.at(bytes, size),
    })
    progress.end()
    cli.output.note(`pushed ${basename(file)} (${size} bytes) ${loginOf(reply)}`)
    cli.show('data', reply)
  } finally {
    progress.end()
  }
}

const LOGINS: Readonly<Record<string, string>> = {
  own: 'with the login of --registry-user',
  configured: 'with the login that the module proxy is configured with',
  none: 'without a login at the registry',
}

function loginOf({ value }: Reply): string {
  return LOGINS[isRecord(value) ? String(value['login']) : ''] ?? ''
}

/** Credentials for the registry alone; the password comes from the environment, where no list of processes shows it. */
function registryHeaders(cli: Cli, given: Given): Record<string, string> {
  const user = given.flags.get('registry-user')
  if (user === undefined) return {}
  const password = cli.settings.environment['SKEIN_REGISTRY_PASSWORD']
  if (password === undefined) throw new CommandError('SKEIN_REGISTRY_PASSWORD is not set')
  return { 'Registry-Authorization': `Basic ${Buffer.from(`${user}:${password}`).toString('base64')}` }
}
