import type { IncomingMessage } from '../model/message.ts'

/** The size of the objects of a message, and of each of its records. */
const MESSAGE_BYTES = 300
const RECORD_BYTES = 130

/** The approximate memory of a queued message in bytes. */
export function sizeOf({ content }: IncomingMessage): number {
  switch (content.kind) {
    case 'records': {
      let bytes = MESSAGE_BYTES
      for (const { stringValue, dataValue, name } of content.records) {
        bytes += RECORD_BYTES + name.length
        if (stringValue !== undefined) bytes += stringValue.length * 2
        if (dataValue !== undefined) bytes += dataValue.length
      }
      return bytes
    }
    case 'documents':
      return content.documents.reduce((sum, document) => sum + document.length * 2, MESSAGE_BYTES)
    case 'raw':
      return MESSAGE_BYTES + content.body.length
  }
}
