// contract section 15 "SKEIN_SMTP_URL", decision 55: mails leave over a real SMTP server, or as files
import { mkdtempSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Writable } from 'node:stream'
import { SMTPServer } from 'smtp-server'
import type { SMTPServerOptions } from 'smtp-server'
import { expect, test } from 'vitest'
import { createMailer } from '#api/identity/mail/mailer.ts'
import { startMailer } from '#api/identity/mail/start.ts'
import { fileTransport, smtpTransport } from '#api/identity/mail/transport.ts'
import type { MailTransport } from '#api/identity/mail/transport.ts'
import { Secret } from '#core/config/index.ts'
import { createLogger } from '#core/logging/index.ts'
import { startTestApi } from '../harness/api.ts'
import { silentLogger } from '../harness/database.ts'
import { until } from '../harness/until.ts'
import { readMails } from './mailbox.ts'

const FROM = { name: 'Skein', address: 'no-reply@example.com' }
const SOON = [10, 10, 10]
const mail = (fields: Partial<{ to: string; subject: string; text: string }> = {}) => ({
  to: 'jane@example.com',
  subject: 'Hello',
  text: 'https://skein.example.com/password/reset?token=do-not-log-this',
  ...fields,
})

type Received = { from: string; to: string[]; message: string; secure: boolean; user: unknown }

/** A mail server that keeps what it gets. */
async function startServer(options: SMTPServerOptions = {}) {
  const received: Received[] = []
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: options.onAuth === undefined ? ['AUTH', 'STARTTLS'] : [],
    logger: false,
    closeTimeout: 10,
    onData(stream, session, done) {
      const chunks: Buffer[] = []
      stream.on('data', (chunk: Buffer) => void chunks.push(chunk))
      stream.on('end', () => {
        const { mailFrom, rcptTo } = session.envelope
        received.push({
          from: mailFrom === false ? '' : mailFrom.address,
          to: rcptTo.map((one) => one.address),
          message: Buffer.concat(chunks).toString(),
          secure: session.secure,
          user: session.user,
        })
        done()
      })
    },
    ...options,
  })
  server.on('error', () => undefined)
  const listening = server.listen(0, '127.0.0.1')
  await new Promise((resolve) => listening.once('listening', resolve))
  return {
    received,
    port: (listening.address() as AddressInfo).port,
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  }
}

function captureLog() {
  const lines: string[] = []
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      lines.push(chunk.toString())
      done()
    },
  })
  return { logger: createLogger({ name: 'test', level: 'trace', stream }), written: () => lines.join('') }
}

function temporaryFolder() {
  const path = mkdtempSync(join(tmpdir(), 'skein-mail-'))
  return { path, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) }
}

test('a mail reaches its recipient only, with its text unchanged', async () => {
  await using server = await startServer()
  const mailer = createMailer({
    transport: smtpTransport(`smtp://127.0.0.1:${server.port}`, FROM),
    logger: silentLogger,
  })
  expect(await mailer.send(mail())).toBe(true)
  await mailer.stop()
  expect(server.received).toMatchObject([{ from: 'no-reply@example.com', to: ['jane@example.com'], secure: false }])
  expect(server.received[0]?.message).toContain(
    '\r\n\r\nhttps://skein.example.com/password/reset?token=do-not-log-this\r\n',
  )
})

test('smtps uses TLS from the first byte and the login of the address, and a wrong certificate is refused', async () => {
  await using server = await startServer({
    secure: true,
    onAuth: (auth, _session, done) =>
      auth.password === 'p@ss' ? done(null, { user: auth.username }) : done(new Error('wrong login')),
  })
  const host = `127.0.0.1:${server.port}`
  const { logger, written } = captureLog()
  const strict = createMailer({
    transport: smtpTransport(`smtps://me:p%40ss@${host}`, FROM),
    logger,
    retryDelaysMs: [],
  })
  expect(await strict.send(mail())).toBe(false)
  await strict.stop()
  expect(written()).not.toContain('p@ss')
  const lax = createMailer({
    transport: smtpTransport(`smtps://me:p%40ss@${host}?tls.rejectUnauthorized=false`, FROM),
    logger,
  })
  expect(await lax.send(mail())).toBe(true)
  await lax.stop()
  expect(server.received).toMatchObject([{ secure: true, user: 'me' }])
})

test('sending to an unavailable or busy server is repeated until it accepts the mail', async () => {
  let refusals = 2
  await using server = await startServer({
    onRcptTo: (_address, _session, done) => {
      if (refusals-- > 0) done(Object.assign(new Error('later'), { responseCode: 451 }))
      else done()
    },
  })
  const mailer = createMailer({
    transport: smtpTransport(`smtp://127.0.0.1:${server.port}`, FROM),
    logger: silentLogger,
    retryDelaysMs: SOON,
  })
  expect(await mailer.send(mail())).toBe(true)
  await mailer.stop()
  expect(server.received).toHaveLength(1)
})

test('after the last attempt the mail is dropped, and the log contains neither link nor subject', async () => {
  const { logger, written } = captureLog()
  await using server = await startServer({
    onData: (stream, _session, done) => {
      // A server that quotes what it refuses, as filters do.
      stream.on('data', () => undefined)
      stream.on('end', () => done(Object.assign(new Error(`refused: ${mail().text}`), { responseCode: 451 })))
    },
  })
  const mailer = createMailer({
    transport: smtpTransport(`smtp://127.0.0.1:${server.port}`, FROM),
    logger,
    retryDelaysMs: SOON,
  })
  expect(await mailer.send(mail({ subject: 'Quiet please' }))).toBe(false)
  await mailer.stop()
  expect(written()).toContain('giving up')
  expect(written()).toContain('"attempts":4')
  expect(written()).not.toContain('do-not-log-this')
  expect(written()).not.toContain('Quiet please')
})

test('a recipient that the server does not know is not tried again', async () => {
  let attempts = 0
  await using server = await startServer({
    onRcptTo: (_address, _session, done) => {
      attempts += 1
      done(Object.assign(new Error('no such user'), { responseCode: 550 }))
    },
  })
  const mailer = createMailer({
    transport: smtpTransport(`smtp://127.0.0.1:${server.port}`, FROM),
    logger: silentLogger,
    retryDelaysMs: SOON,
  })
  expect(await mailer.send(mail())).toBe(false)
  await mailer.stop()
  expect(attempts).toBe(1)
})

test.each([
  'jane@example.com\r\nRCPT TO:<joe@example.com>',
  'jane@example.com, joe@example.com',
  'Jane <jane@example.com>',
  '',
])('a mail to %j is not sent', async (to) => {
  await using server = await startServer()
  const mailer = createMailer({
    transport: smtpTransport(`smtp://127.0.0.1:${server.port}`, FROM),
    logger: silentLogger,
  })
  expect(await mailer.send(mail({ to }))).toBe(false)
  await mailer.stop()
  expect(server.received).toEqual([])
})

test('a subject with line breaks adds no header', async () => {
  await using server = await startServer()
  const mailer = createMailer({
    transport: smtpTransport(`smtp://127.0.0.1:${server.port}`, FROM),
    logger: silentLogger,
  })
  await mailer.send(mail({ subject: 'Hello\r\nBcc: joe@example.com\r\n\r\nbody' }))
  await mailer.stop()
  expect(server.received[0]?.to).toEqual(['jane@example.com'])
  expect(server.received[0]?.message).not.toMatch(/^Bcc:/m)
})

test('mails above the limit are dropped at once, and a stop reports every dropped mail', async () => {
  const { logger, written } = captureLog()
  const stuck: MailTransport = {
    deliver: (_mail, signal) =>
      new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('aborted')))),
    close: () => undefined,
  }
  const mailer = createMailer({ transport: stuck, logger, retryDelaysMs: SOON })
  const waiting = Array.from({ length: 1000 }, () => mailer.send(mail()))
  expect(await mailer.send(mail())).toBe(false)
  await mailer.stop()
  expect(new Set(await Promise.all(waiting))).toEqual(new Set([false]))
  expect(written()).toContain('"mails":1000')
  expect(await mailer.send(mail())).toBe(false)
})

test('without a server mails are files for their owner only, and the log contains their names', async () => {
  using folder = temporaryFolder()
  const { logger, written } = captureLog()
  const mailer = startMailer(
    { smtpUrl: undefined, mailFrom: undefined, publicUrl: 'https://skein.example.com' },
    folder.path,
    logger,
  )
  expect(await mailer.send(mail())).toBe(true)
  await mailer.stop()
  const [received] = readMails(folder.path)
  expect(received).toMatchObject({ to: 'jane@example.com', subject: 'Hello' })
  expect(statSync(received?.file ?? '').mode & 0o777).toBe(0o600)
  expect(statSync(join(folder.path, 'mail')).mode & 0o777).toBe(0o700)
  expect(written()).toContain(received?.file)
  expect(written()).not.toContain('do-not-log-this')
})

test('the newest thousand files are kept', async () => {
  using folder = temporaryFolder()
  await mkdir(folder.path, { recursive: true })
  for (let index = 0; index < 1000; index++)
    writeFileSync(join(folder.path, `2020-01-01-${String(index).padStart(4, '0')}.eml`), '')
  await fileTransport(folder.path, FROM, silentLogger).deliver(mail(), new AbortController().signal)
  const names = readdirSync(folder.path).toSorted()
  expect(names).toHaveLength(1000)
  expect(names[0]).toBe('2020-01-01-0001.eml')
})

test.each([
  ['SKEIN_SMTP_URL', { smtpUrl: new Secret('http://me:pass@example.com'), mailFrom: undefined }],
  ['SKEIN_SMTP_URL', { smtpUrl: new Secret('pass'), mailFrom: undefined }],
  ['SKEIN_MAIL_FROM', { smtpUrl: undefined, mailFrom: 'nobody' }],
  ['SKEIN_MAIL_FROM', { smtpUrl: undefined, mailFrom: 'A <a@example.com>\r\nBcc: b@example.com' }],
])('an invalid %s stops the start with its name and without its value', (name, config) => {
  const start = () => startMailer({ ...config, publicUrl: 'http://127.0.0.1:8080' }, '/nowhere', silentLogger)
  expect(start).toThrow(name)
  expect(start).not.toThrow('pass@')
})

test.each([
  [undefined, 'https://skein.example.com/x', 'no-reply@skein.example.com'],
  [undefined, 'http://127.0.0.1:8080', 'no-reply@localhost'],
  [undefined, 'http://[::1]:8080', 'no-reply@localhost'],
  ['Plant <plant@example.com>', 'http://127.0.0.1:8080', 'plant@example.com'],
])('with SKEIN_MAIL_FROM %s under %s the sender is %s', async (mailFrom, publicUrl, sender) => {
  await using server = await startServer()
  const mailer = startMailer(
    { smtpUrl: new Secret(`smtp://127.0.0.1:${server.port}`), mailFrom, publicUrl },
    '/nowhere',
    silentLogger,
  )
  expect(await mailer.send(mail())).toBe(true)
  await mailer.stop()
  expect(server.received[0]?.from).toBe(sender)
})

test('the link for a new password is sent with the server of the settings', async () => {
  await using server = await startServer()
  await using api = await startTestApi({
    environment: {
      SKEIN_SMTP_URL: `smtp://127.0.0.1:${server.port}`,
      SKEIN_MAIL_FROM: 'Plant <plant@example.com>',
      SKEIN_URL: 'https://skein.example.com',
    },
  })
  const user = await api.newUser()
  await api.anonymous('POST', '/password/reset-request', { email: `${user.username}@example.com` })
  const received = await until(() => server.received[0], 'the mail')
  expect(received.to).toEqual([`${user.username}@example.com`])
  const token = /^https:\/\/skein\.example\.com\/password\/reset\?token=([\w-]{43})\r$/m.exec(received.message)?.[1]
  const body = { password: 'a new password', confirm_password: 'a new password' }
  expect((await api.as(`Bearer ${token}`)('PUT', '/password/reset', body)).status).toBe(201)
})
