/** Commands of `skein certs` that read or write files: signing requests, states and the certificate of the authority. */
import { createPrivateKey } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import type { Cli, Command } from '../shared/command.ts'
import { CommandError } from '../shared/failures.ts'
import { arg, isRecord, jsonObject, plainText } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const CERTS = '/{domain!}/certs'
const CA_FILE = 'ca.crt'
/** The columns of the group `certs`. */
const COLUMNS = ['serial_number', 'client_id', 'expiry_time', 'revoked']

export const CERTIFICATE_FILE_COMMANDS: readonly Command[] = [
  {
    words: 'csr',
    args: '<JSON_names> <private_key>',
    tail: 'none',
    summary: 'print a certificate signing request for a private key in a PEM file',
    example: `'{"common_name": "pump"}' pump.key`,
    run: printSigningRequest,
  },
  {
    words: 'issue-csr',
    args: '<client_id> <ttl> <csr>',
    tail: 'domain',
    summary: 'sign the certificate signing request in a PEM file',
    example: '<client_id> 24h pump.csr',
    isOlder: true,
    call: {
      method: 'POST',
      service: 'certs',
      path: `${CERTS}/csrs/{client_id}`,
      body: (given) => ({ csr: fileOf(arg(given, 'csr')), ttl: arg(given, 'ttl') }),
    },
  },
  {
    words: 'ocsp',
    args: '<serial|certificate>',
    tail: 'none',
    summary: 'show whether a certificate is revoked, by its serial or its PEM file',
    example: '<serial>',
    call: {
      method: 'POST',
      service: 'certs',
      path: '/certs/ocsp',
      auth: 'none',
      body: (given) => {
        const value = arg(given, 'serial|certificate')
        return SERIAL.test(value) ? { serial_number: value } : { certificate: fileOf(value) }
      },
    },
  },
  {
    words: 'download-ca',
    args: '[<file>]',
    tail: 'none',
    summary: `write the certificate of the authority to a file (${CA_FILE})`,
    example: 'authority.crt',
    run: downloadAuthority,
  },
]

/** Hexadecimal, with or without colons. */
const SERIAL = /^[0-9a-f]+(:[0-9a-f]+)*$/i

function fileOf(path: string): string {
  const name = path.replace(/^@/, '')
  try {
    return readFileSync(name, 'utf8')
  } catch (error) {
    throw new CommandError(`cannot read ${name}: ${(error as Error).message}`)
  }
}

/**
 * Prints a signing request without a request to Skein: the key does not leave this machine. Skein ignores all names of a signing request,
 * so it has the common name alone.
 */
async function printSigningRequest(cli: Cli, given: Given): Promise<void> {
  const commonName = plainText(jsonObject(given, 'JSON_names')['common_name'])
  if (commonName === '') throw new CommandError('<JSON_names> must contain "common_name"')
  const { SigningKey, createSigningRequest, pem } = await import('#x509/index.ts')
  let key
  try {
    key = new SigningKey(createPrivateKey(fileOf(arg(given, 'private_key'))))
  } catch (error) {
    if (error instanceof CommandError) throw error
    throw new CommandError('<private_key> must be a private key in PEM: P-256, P-384, P-521, RSA or Ed25519')
  }
  cli.output.line(pem('CERTIFICATE REQUEST', await createSigningRequest(commonName, key)).trimEnd())
}

async function downloadAuthority(cli: Cli, given: Given): Promise<void> {
  const file = given.args['file'] ?? CA_FILE
  const { value } = await cli.request({
    method: 'GET',
    service: 'certs',
    path: '/certs/download-ca',
    query: { format: 'pem' },
    authorization: 'none',
  })
  try {
    writeFileSync(file, String(value), { flag: 'wx' })
  } catch (error) {
    throw new CommandError(`cannot write ${file}: ${(error as Error).message}`)
  }
  cli.output.ok()
}

/** Shows the new certificate of a renewal. */
export async function renew(cli: Cli, given: Given): Promise<void> {
  const reply = await cli.call({ method: 'PATCH', service: 'certs', path: `${CERTS}/{serial}/renew` }, given)
  cli.show(
    'data',
    { ...reply, value: isRecord(reply.value) ? reply.value['certificate'] : reply.value },
    { columns: COLUMNS },
  )
}

/** Prints the id of the client of a certificate. */
export async function printEntityId(cli: Cli, given: Given): Promise<void> {
  const { value } = await cli.call({ method: 'GET', service: 'certs', path: `${CERTS}/{serial}` }, given)
  cli.output.line(plainText(isRecord(value) ? value['entity_id'] : undefined))
}
