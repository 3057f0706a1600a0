/** A CoAP peer that sends the given messages and records those that it receives; it acknowledges nothing by itself. */
import { randomInt } from 'node:crypto'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { generate, parse } from 'coap-packet'
import type { OptionName, Packet, ParsedPacket } from 'coap-packet'
import { until } from '../harness/until.ts'

const MAX_PACKET_BYTES = 65_000
const ANSWER_DEADLINE_MS = 30_000
/** What is not answered is sent again (RFC 7252 section 4.2): a socket that is full loses what comes. */
const RETRANSMIT_MS = 2000
/** RFC 9175 section 2.2; the packet library has no name for it. */
const ECHO = '252'

export type Ask = {
  code?: Packet['code']
  /** `/m/…?auth=…`, as in an address. */
  path?: string
  options?: { name: number | string; value: Buffer }[]
  payload?: Buffer | string
  confirmable?: boolean
  messageId?: number
  token?: Buffer
}

export type CoapPeer = Disposable & {
  readonly got: ParsedPacket[]
  /** Sizes of the datagrams that came. */
  readonly gotBytes: number[]
  /** Resolves when the machine says that nothing listens at the port. */
  readonly refused: Promise<void>
  send(datagram: Buffer): void
  /** Sends a request and gives its message identifier and token. */
  ask(request: Ask): { messageId: number; token: Buffer; bytes: number }
  /** The answer to a request, piggybacked or not, but no empty acknowledgement; one that is confirmable is sent again. */
  request(request: Ask): Promise<ParsedPacket>
  /** Resolves with what came with this token so far as soon as there is so much. */
  answers(token: Buffer, count: number, deadlineMs?: number): Promise<ParsedPacket[]>
  /** Shows the server that this peer is at its address, by the Echo value that it offers with the answer to a GET. */
  prove(path: string): Promise<void>
  acknowledge(packet: ParsedPacket): void
  reset(packet: ParsedPacket): void
}

export async function openPeer(port: number): Promise<CoapPeer> {
  const socket = createSocket('udp4')
  const refused = Promise.withResolvers<void>()
  // Connected, so that ICMP errors are reported. A message that is lost is sent again.
  socket.bind(0, '127.0.0.1', () => socket.connect(port, '127.0.0.1'))
  await once(socket, 'connect')
  socket.on('error', () => refused.resolve())
  const got: ParsedPacket[] = []
  const gotBytes: number[] = []
  let nextMessageId = randomInt(0x1_0000)
  socket.on('message', (datagram) => {
    gotBytes.push(datagram.length)
    got.push(parse(datagram))
  })
  let isClosed = false
  const send = (datagram: Buffer) => {
    if (!isClosed) socket.send(datagram)
  }
  const withToken = (token: Buffer) => got.filter((packet) => packet.code !== '0.00' && packet.token.equals(token))

  const peer: CoapPeer = {
    got,
    gotBytes,
    refused: refused.promise,
    send,
    ask({ code = 'GET', path = '', options = [], payload = '', confirmable = true, messageId, token }) {
      const url = new URL(path, 'coap://host')
      const id = messageId ?? nextMessageId++ % 0x1_0000
      const mark = token ?? Buffer.from(String(randomInt(2 ** 40)).slice(0, 8))
      const elements = url.pathname.split('/').slice(1)
      const parts = [
        ...elements
          .filter((element) => element !== '')
          .map((element) => ({ name: 'Uri-Path' as const, value: Buffer.from(decodeURIComponent(element)) })),
        ...[...url.searchParams].map(([name, value]) => ({
          name: 'Uri-Query' as const,
          value: Buffer.from(`${name}=${value}`),
        })),
        ...options,
      ]
      const datagram = generate(
        {
          code,
          messageId: id,
          token: mark,
          confirmable,
          payload: Buffer.from(payload),
          options: parts as Packet['options'] & object,
        },
        MAX_PACKET_BYTES,
      )
      send(datagram)
      return { messageId: id, token: mark, bytes: datagram.length }
    },
    async request(request) {
      const { token, messageId } = peer.ask(request)
      const again =
        request.confirmable === false
          ? undefined
          : setInterval(() => peer.ask({ ...request, token, messageId }), RETRANSMIT_MS)
      try {
        const [answer] = await peer.answers(token, 1)
        return answer as ParsedPacket
      } finally {
        clearInterval(again)
      }
    },
    async answers(token, count, deadlineMs = ANSWER_DEADLINE_MS) {
      await until(() => withToken(token).length >= count, `${count} answers`, deadlineMs)
      return withToken(token)
    },
    async prove(path) {
      const value = echoOf(await peer.request({ path }))
      // It is not offered to a peer that has proved it already.
      if (value === undefined) return
      await peer.request({ path, options: [{ name: Number(ECHO), value }] })
    },
    acknowledge: ({ messageId }) => send(generate({ code: '0.00', messageId, ack: true })),
    reset: ({ messageId }) => send(generate({ code: '0.00', messageId, reset: true })),
    [Symbol.dispose]() {
      isClosed = true
      socket.close()
    },
  }
  return peer
}

/** The Echo value of an answer. */
export function echoOf(packet: ParsedPacket | undefined): Buffer | undefined {
  return packet?.options.find(({ name }) => String(name) === ECHO)?.value
}

export function optionOf(packet: ParsedPacket | undefined, name: OptionName): number | undefined {
  const option = packet?.options.find((one) => one.name === name)
  if (option === undefined) return undefined
  return option.value.length === 0 ? 0 : option.value.readUIntBE(0, option.value.length)
}
