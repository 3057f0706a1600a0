/** Certificates of clients: issue, list, view, renew, revoke, signing requests, OCSP and the list of revoked ones (contract 9.3). */
import { execFile, spawnSync } from 'node:child_process'
import { X509Certificate, createPrivateKey, createPublicKey } from 'node:crypto'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { newId } from '#core/ids.ts'
import { startTestApi } from '../harness/api.ts'
import { useWorld } from '../harness/world.ts'
import { newTenant } from '../api/support.ts'

type Certificate = {
  client_id: string
  serial_number: string
  certificate: string
  key: string
  ca_chain: string[]
  issuing_ca: string
  expiry_time: string
  revoked: boolean
  revocation_time?: string
}

const run = promisify(execFile)
const hasOcspTool = spawnSync('ocsptool', ['--version']).error === undefined
const api = useWorld(() => startTestApi())
const tenant = useWorld(() => newTenant(api))
let folder: string
let caFile: string

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'skein-certs-'))
  caFile = file('ca.pem', (await api.anonymous('GET', '/certs/view-ca')).json<{ certificate: string }>().certificate)
})
afterAll(async () => {
  rmSync(folder, { recursive: true })
})

function file(name: string, data: string | Buffer): string {
  const path = join(folder, name)
  writeFileSync(path, data)
  return path
}

/** What openssl says; its refusals are text too. */
async function openssl(...args: string[]): Promise<string> {
  return await run('openssl', args).then(
    ({ stdout, stderr }) => stdout + stderr,
    (error: unknown) => {
      const { stdout = '', stderr = '' } = error as { stdout?: string; stderr?: string }
      return `failed: ${stdout}${stderr}`
    },
  )
}

async function issue(clientId: string, fields: Record<string, unknown> = {}, by = tenant): Promise<Certificate> {
  const answer = await by.call('POST', `/${by.domainId}/certs`, { client_id: clientId, ...fields })
  expect(answer.status, answer.text).toBe(201)
  return answer.json<Certificate>()
}

const bytesOf = async (url: string) => (await api.app.inject({ method: 'GET', url })).rawPayload

/** The files of a question about a certificate and of its response. */
async function ocspResponse(serialFile: string, ...more: string[]): Promise<{ request: string; response: string }> {
  const request = join(folder, `${newId()}.req`)
  const response = join(folder, `${newId()}.resp`)
  await openssl('ocsp', '-issuer', caFile, ...more, '-cert', serialFile, '-reqout', request)
  const answer = await api.app.inject({
    method: 'POST',
    url: '/certs/ocsp',
    headers: { 'content-type': 'application/ocsp-request' },
    payload: readFileSync(request),
  })
  expect(answer.headers['content-type']).toBe('application/ocsp-response')
  writeFileSync(response, answer.rawPayload)
  return { request, response }
}

async function ocsp(serialFile: string, ...more: string[]): Promise<string> {
  const { request, response } = await ocspResponse(serialFile, ...more)
  return await openssl(
    'ocsp',
    '-issuer',
    caFile,
    '-CAfile',
    caFile,
    '-respin',
    response,
    '-reqin',
    request,
    '-resp_text',
  )
}

it.runIf(process.env['CI'] === 'true')('the ocsptool of GnuTLS is installed where tests decide', () => {
  expect(hasOcspTool).toBe(true)
})

describe('issuing', () => {
  it('returns a certificate of the authority with its private key, and openssl accepts it', async () => {
    const client = await tenant.newClient()
    const issued = await issue(client.id, { ttl: '24h' })
    expect(issued).toMatchObject({ client_id: client.id, revoked: false })
    const certificate = new X509Certificate(issued.certificate)
    expect(certificate.checkPrivateKey(createPrivateKey(issued.key))).toBe(true)
    expect(certificate.subject).toBe(`CN=${client.id}`)
    expect(certificate.serialNumber.toLowerCase()).toBe(issued.serial_number)
    expect(certificate.subjectAltName).toBe(`URI:urn:uuid:${client.id}`)
    const leftMs = Date.parse(issued.expiry_time) - Date.now()
    expect(leftMs).toBeGreaterThan(23.9 * 3_600_000)
    expect(leftMs).toBeLessThanOrEqual(24 * 3_600_000)
    const path = file('leaf.pem', issued.certificate)
    expect(await openssl('verify', '-x509_strict', '-purpose', 'sslclient', '-CAfile', caFile, path)).toBe(
      `${path}: OK\n`,
    )
  })

  it('never issues a certificate that is valid for a server', async () => {
    const client = await tenant.newClient()
    const answer = await tenant.call('POST', `/${tenant.domainId}/certs/issue/${client.id}`, {
      options: { common_name: 'skein.example.com', dns_names: ['skein.example.com'] },
      ip_addresses: ['127.0.0.1'],
    })
    const path = file('server.pem', answer.json<Certificate>().certificate)
    expect(await openssl('verify', '-purpose', 'sslserver', '-CAfile', caFile, path)).toContain(
      'unsuitable certificate purpose',
    )
  })

  it('accepts names and addresses of the current format', async () => {
    const client = await tenant.newClient()
    const answer = await tenant.call('POST', `/${tenant.domainId}/certs/issue/${client.id}`, {
      ttl: '1h',
      options: { common_name: 'pump 7', organization: ['North plant'], country: ['NO'], locality: ['Bergen'] },
      ip_addresses: ['10.1.2.3', '2001:db8::1'],
    })
    expect(answer.status).toBe(201)
    const { subject, subjectAltName } = new X509Certificate(answer.json<Certificate>().certificate)
    expect(subject.split('\n')).toEqual(['C=NO', 'L=Bergen', 'O=North plant', 'CN=pump 7'])
    expect(subjectAltName).toContain('IP Address:10.1.2.3, IP Address:2001:DB8:0:0:0:0:0:1')
  })

  it.each([
    ['no duration', { ttl: 'soon' }, 400],
    ['a negative one', { ttl: '-1h' }, 400],
    ['nothing', { ttl: '0' }, 400],
    ['longer than the authority lives', { ttl: '900000h' }, 400],
    ['an address that is none', { ip_addresses: ['300.1.1.1'] }, 400],
    ['a country that is none', { options: { country: ['Norway'] } }, 400],
  ])('refuses %s', async (_what, fields, status) => {
    const client = await tenant.newClient()
    const answer = await tenant.call('POST', `/${tenant.domainId}/certs`, { client_id: client.id, ...fields })
    expect(answer.status).toBe(status)
  })

  it('rejects a missing client with 400 and an unknown client with 404', async () => {
    const at = `/${tenant.domainId}/certs`
    expect((await tenant.call('POST', at, { ttl: '1h' })).status).toBe(400)
    expect((await tenant.call('POST', at, { client_id: newId() })).status).toBe(404)
    expect((await api.anonymous('POST', at, { client_id: newId() })).status).toBe(401)
  })

  it('accepts the legacy name of the client', async () => {
    const client = await tenant.newClient()
    const answer = await tenant.call('POST', `/${tenant.domainId}/certs`, { thing_id: client.id })
    expect(answer.status).toBe(201)
  })
})

describe('private keys', () => {
  it('are only in the first response', async () => {
    const client = await tenant.newClient()
    const issued = await issue(client.id)
    expect(issued.key).toContain('BEGIN PRIVATE KEY')
    const view = await tenant.call('GET', `/${tenant.domainId}/certs/${issued.serial_number}`)
    expect(view.json<Certificate>()).toMatchObject({ key: '', certificate: issued.certificate })
    const list = await tenant.call('GET', `/${tenant.domainId}/serials/${client.id}`)
    expect(list.text).not.toContain('PRIVATE KEY')
    const { rows } = await api.database.pool.query('SELECT row_to_json(c)::text AS row FROM certificates c')
    expect(JSON.stringify(rows)).not.toContain('PRIVATE KEY')
    const journal = await api.database.pool.query('SELECT row_to_json(j)::text AS row FROM journal j')
    expect(JSON.stringify(journal.rows)).not.toContain('PRIVATE KEY')
  })

  it('of the authority are stored encrypted in the database, and a second process uses the same authority', async () => {
    const { rows } = await api.database.pool.query<{ sealed: Buffer }>(
      "SELECT sealed FROM sealed_secrets WHERE name = 'certificate_authority'",
    )
    expect(rows[0]?.sealed.toString('latin1')).not.toContain('PRIVATE')
    await using other = await startTestApi({
      database: {
        address: api.address as never,
        database: api.database,
        [Symbol.asyncDispose]: () => Promise.resolve(),
      },
    })
    expect((await other.anonymous('GET', '/certs/view-ca')).json()).toEqual(
      (await api.anonymous('GET', '/certs/view-ca')).json(),
    )
  })
})

describe('listing', () => {
  it('pages the certificates of a client, newest first, filtered by revocation', async () => {
    const client = await tenant.newClient()
    const serials: string[] = []
    for (let count = 0; count < 3; count++) serials.unshift((await issue(client.id)).serial_number)
    await tenant.call('DELETE', `/${tenant.domainId}/certs/${serials[1]}`)
    const list = async (query: string) =>
      (await tenant.call('GET', `/${tenant.domainId}/serials/${client.id}?${query}`)).json<{
        total: number
        certs: Certificate[]
      }>()
    expect((await list('')).certs.map((one) => one.serial_number)).toEqual(serials)
    expect(await list('limit=1&offset=1')).toMatchObject({ total: 3, offset: 1, limit: 1 })
    expect((await list('revoked=true')).certs.map((one) => one.serial_number)).toEqual([serials[1]])
    expect((await list('revoked=false')).certs).toHaveLength(2)
    expect((await tenant.call('GET', `/${tenant.domainId}/serials/${client.id}?revoked=maybe`)).status).toBe(400)
  })

  it('shows nothing of another tenant, and no certificate through the domain of another tenant', async () => {
    const other = await newTenant(api)
    const client = await tenant.newClient()
    const { serial_number: serial } = await issue(client.id)
    expect((await other.call('GET', `/${tenant.domainId}/certs/${serial}`)).status).toBe(403)
    expect((await other.call('GET', `/${other.domainId}/certs/${serial}`)).status).toBe(404)
    expect((await other.call('DELETE', `/${other.domainId}/certs/${serial}`)).status).toBe(404)
    expect((await other.call('POST', `/${other.domainId}/certs`, { client_id: client.id })).status).toBe(404)
    expect((await other.call('GET', `/${other.domainId}/certs`)).json()).toMatchObject({ total: 0, certs: [] })
  })
})

describe('revoking', () => {
  it('is answered with responses that name the authority and contain its certificate', async () => {
    const issued = await issue((await tenant.newClient()).id)
    const text = await ocsp(file('named.pem', issued.certificate))
    const name = new X509Certificate(readFileSync(caFile)).subject.split('CN=')[1] as string
    expect(text.split('Responder Id:')[1]?.split('\n')[0]).toContain(name)
    expect(text).toContain('-----BEGIN CERTIFICATE-----')
    expect(text).toContain('Response verify OK')
  })

  it.skipIf(!hasOcspTool)('is answered with responses that GnuTLS verifies (needs gnutls-bin)', async () => {
    const issued = await issue((await tenant.newClient()).id)
    const certificateFile = file('gnutls.pem', issued.certificate)
    const verified = async () => {
      const { response } = await ocspResponse(certificateFile)
      const trust = ['--load-issuer', caFile, '--load-trust', caFile]
      const { stdout } = await run('ocsptool', ['--verify-response', '--load-response', response, ...trust])
      return stdout + (await run('ocsptool', ['--response-info', '--load-response', response])).stdout
    }
    expect(await verified()).toMatch(/Verifying OCSP Response: Success\.[^]*Certificate Status: good/)
    const gone = await tenant.call('POST', `/${tenant.domainId}/certs/${issued.serial_number}/revoke`)
    expect(gone.status, gone.text).toBeLessThan(300)
    expect(await verified()).toMatch(/Verifying OCSP Response: Success\.[^]*Certificate Status: revoked/)
  })

  it('reports the time of the revocation, which is idempotent, in OCSP, JSON and the revocation list', async () => {
    const client = await tenant.newClient()
    const [gone, good] = [await issue(client.id), await issue(client.id)]
    const [goneFile, goodFile] = [file('gone.pem', gone.certificate), file('good.pem', good.certificate)]
    expect(await ocsp(goneFile)).toMatch(/Cert Status: good[^]*Response verify OK/)
    const first = await tenant.call('DELETE', `/${tenant.domainId}/certs/${gone.serial_number}`)
    expect(first.status).toBe(200)
    const again = await tenant.call('POST', `/${tenant.domainId}/certs/${gone.serial_number.toUpperCase()}/revoke`)
    expect(again.json()).toEqual(first.json())
    expect((await tenant.call('PATCH', `/${tenant.domainId}/certs/${gone.serial_number}/revoke`)).status).toBe(204)

    expect(await ocsp(goneFile, '-sha256')).toMatch(/Cert Status: revoked[^]*Response verify OK/)
    expect(await ocsp(goodFile, '-no_nonce')).toMatch(/Cert Status: good[^]*Response verify OK/)
    const json = await stateOf({ serial_number: gone.serial_number })
    expect(json.json()).toMatchObject({
      status: 'revoked',
      // OCSP knows milliseconds at most.
      revocation_time: expect.stringContaining(first.json<{ revocation_time: string }>().revocation_time.slice(0, 23)),
    })
    expect((await stateOf({ certificate: good.certificate })).json()).toMatchObject({
      status: 'good',
    })

    const list = file('crl.pem', await bytesOf('/certs/crl?format=pem'))
    const check = (path: string) => openssl('verify', '-crl_check', '-CRLfile', list, '-CAfile', caFile, path)
    expect(await check(goodFile)).toContain(': OK')
    expect(await check(goneFile)).toContain('certificate revoked')
  })

  it('of a client revokes all of its certificates', async () => {
    const client = await tenant.newClient()
    const [one, two] = [await issue(client.id), await issue(client.id)]
    expect((await tenant.call('DELETE', `/${tenant.domainId}/certs/${client.id}`)).status).toBe(200)
    for (const { serial_number: serial } of [one, two])
      expect((await tenant.call('GET', `/${tenant.domainId}/certs/${serial}`)).json()).toMatchObject({ revoked: true })
    expect((await tenant.call('DELETE', `/${tenant.domainId}/certs/${client.id}`)).status).toBe(200)
    expect((await tenant.call('POST', `/${tenant.domainId}/certs/${client.id}/revoke-all`)).json()).toMatchObject({
      revocation_time: expect.stringMatching(/Z$/),
    })
    const bare = await tenant.newClient()
    expect((await tenant.call('DELETE', `/${tenant.domainId}/certs/${bare.id}`)).status).toBe(404)
    expect((await tenant.call('DELETE', `/${tenant.domainId}/certs/${bare.id}/delete`)).status).toBe(204)
  })

  it('happens automatically when the client is deleted', async () => {
    const client = await tenant.newClient()
    const issued = await issue(client.id)
    await tenant.call('DELETE', `/${tenant.domainId}/clients/${client.id}`)
    const state = await stateOf({ serial_number: issued.serial_number })
    expect(state.json()).toMatchObject({ status: 'revoked' })
    // A new client of the same id has nothing of the old one.
    await tenant.newClient({ id: client.id })
    expect((await tenant.call('GET', `/${tenant.domainId}/certs/${issued.serial_number}`)).status).toBe(404)
    expect((await tenant.call('GET', `/${tenant.domainId}/serials/${client.id}`)).json()).toMatchObject({ total: 0 })
  })
})

/** The state of a certificate in JSON. */
const stateOf = (question: object) => api.anonymous('POST', '/certs/ocsp', question, { accept: 'application/json' })

describe('renewing', () => {
  it('issues another certificate for the same key; a revoked certificate is rejected', async () => {
    const client = await tenant.newClient()
    const old = await issue(client.id, { ttl: '2h' })
    const renewed = await tenant.call('PATCH', `/${tenant.domainId}/certs/${old.serial_number}/renew`)
    expect(renewed.status).toBe(200)
    const { certificate: next } = renewed.json<{ certificate: Certificate }>()
    expect(next.serial_number).not.toBe(old.serial_number)
    expect(next.key).toBe('')
    expect(new X509Certificate(next.certificate).checkPrivateKey(createPrivateKey(old.key))).toBe(true)
    await tenant.call('DELETE', `/${tenant.domainId}/certs/${old.serial_number}`)
    expect((await tenant.call('PATCH', `/${tenant.domainId}/certs/${old.serial_number}/renew`)).status).toBe(409)
    expect((await tenant.call('PATCH', `/${tenant.domainId}/certs/${next.serial_number}/renew`)).status).toBe(200)
  })
})

describe('signing requests', () => {
  it.each([
    ['P-256', ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256']],
    ['RSA', ['-newkey', 'rsa:2048']],
    ['Ed25519', ['-newkey', 'ed25519']],
  ])('with a key of the kind %s are signed for the client of the path', async (_kind, args) => {
    const client = await tenant.newClient()
    const [request, key] = [join(folder, 'device.csr'), join(folder, 'device.key')]
    await openssl('req', '-new', ...args, '-nodes', '-subj', '/CN=somebody else', '-keyout', key, '-out', request)
    const answer = await tenant.call('POST', `/${tenant.domainId}/certs/csrs/${client.id}`, {
      csr: readFileSync(request, 'utf8'),
      ttl: '1h',
    })
    expect(answer.status, answer.text).toBe(200)
    const { certificate, key: shown } = answer.json<Certificate>()
    expect(shown).toBe('')
    const parsed = new X509Certificate(certificate)
    expect(parsed.subject).toBe(`CN=${client.id}`)
    const own = createPublicKey(readFileSync(key, 'utf8'))
    expect(parsed.publicKey.equals(own)).toBe(true)
    const path = file('signed.pem', certificate)
    expect(await openssl('verify', '-x509_strict', '-CAfile', caFile, path)).toContain(': OK')
  })

  it('that are damaged, weak or signed by another key are rejected', async () => {
    const client = await tenant.newClient()
    const request = join(folder, 'weak.csr')
    await openssl(
      'req',
      '-new',
      '-newkey',
      'rsa:1024',
      '-nodes',
      '-subj',
      '/CN=x',
      '-keyout',
      '/dev/null',
      '-out',
      request,
    )
    await openssl(
      'req',
      '-new',
      '-newkey',
      'ec',
      '-pkeyopt',
      'ec_paramgen_curve:P-256',
      '-nodes',
      '-subj',
      '/CN=x',
      '-keyout',
      '/dev/null',
      '-out',
      join(folder, 'good.csr'),
    )
    const good = readFileSync(join(folder, 'good.csr'), 'utf8')
    const der = Buffer.from(good.replaceAll(/-----[^-]+-----|\s/g, ''), 'base64')
    const damaged = (at: number) => {
      const copy = Buffer.from(der)
      copy[at] = (copy[at] ?? 0) ^ 1
      return `-----BEGIN CERTIFICATE REQUEST-----\n${copy.toString('base64')}\n-----END CERTIFICATE REQUEST-----`
    }
    const all = [readFileSync(request, 'utf8'), '', 'no request', good.slice(0, 100), ...der.keys().map(damaged)]
    for (const csr of all) {
      const answer = await tenant.call('POST', `/${tenant.domainId}/certs/csrs/${client.id}`, { csr })
      expect(answer.status, csr).toBe(400)
    }
  })
})

describe('the public endpoints', () => {
  it('return the authority as JSON, ZIP and PEM', async () => {
    const zip = await bytesOf('/certs/download-ca?token=any')
    expect(
      await run('python3', [
        '-c',
        `import zipfile,sys;print(zipfile.ZipFile(sys.argv[1]).read('ca.crt').decode(),end='')`,
        file('ca.zip', zip),
      ]).then(({ stdout }) => stdout),
    ).toBe((await bytesOf('/certs/download-ca?format=pem')).toString())
  })

  it('return an OCSP error for a body that is not an OCSP request', async () => {
    for (const payload of ['', 'x', '\u0030\u0003\u0030\u0001\u0030', `0\u0082`]) {
      const answer = await api.app.inject({
        method: 'POST',
        url: '/certs/ocsp',
        headers: { 'content-type': 'application/ocsp-request' },
        payload: Buffer.from(payload, 'latin1'),
      })
      expect([200, 400]).toContain(answer.statusCode)
      if (answer.statusCode === 200) expect(answer.rawPayload.toString('hex')).toBe('30030a0101')
    }
    expect((await api.anonymous('POST', '/certs/ocsp', {})).status).toBe(400)
    expect((await stateOf({ serial_number: 'ff' })).json()).toMatchObject({
      status: 'unknown',
    })
  })
})
