/** The order of a consumer: what a message that is not acknowledged holds back. */

export const ORDERS = ['client', 'channel', 'none'] as const
export type Order = (typeof ORDERS)[number]

/** Messages of the same key are delivered in order; '' is the key of what holds nothing back. */
export function orderKey(order: Order, message: { publisherId: string; channelKey: number }): string {
  return order === 'client' ? message.publisherId : order === 'channel' ? String(message.channelKey) : ''
}
