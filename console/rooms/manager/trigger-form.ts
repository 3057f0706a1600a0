/** What the form of a trigger makes of the rule that was there. What the form does not show stays. Pure. */
import type { Task } from '../../api/operations.ts'

export type Trigger = NonNullable<Task['trigger']>
export type Excess = NonNullable<Trigger['excess']>

export const EXCESSES: readonly (readonly [Excess, string])[] = [
  ['wait', 'wait, and start their runs later'],
  ['drop', 'are dropped'],
]

/** What a form begins with. Beyond a new limit messages wait; a limit that was there drops them unless it says otherwise. */
export const excessOf = (trigger: Trigger | undefined): Excess =>
  trigger?.rate_limit === undefined ? 'wait' : (trigger.excess ?? 'drop')

/** Without a limit nothing is beyond it, and debounce keeps the last message alone. */
export const offersExcess = (trigger: Trigger | undefined, rateLimit: string): boolean =>
  rateLimit.trim() !== '' && trigger?.debounce === undefined

/** A field of the form that is empty is absent in the rule. */
export type Order = NonNullable<Trigger['order']> | ''

export const ORDERS: readonly (readonly [Order, string])[] = [
  ['', 'beside each other'],
  ['client', 'one after another for each client'],
  ['channel', 'one after another'],
]

/** What a form begins with: `none` means the same as its absence. */
export const orderOf = (trigger: Trigger | undefined): Order => {
  const order = trigger?.order ?? ''
  return order === 'none' ? '' : order
}

/** Debounce leaves one message. */
export const offersBatches = (trigger: Trigger | undefined): boolean => trigger?.debounce === undefined

export type TriggerForm = {
  channel: string
  name: string
  rateLimit: string
  excess: Excess
  batch: string
  order: Order
}

export function triggerWith(before: Trigger | undefined, form: TriggerForm): Trigger {
  const {
    name: _name,
    rate_limit: _rateLimit,
    excess: kept,
    batch: _batch,
    order: keptOrder,
    ...rest
  } = before ?? { channel_id: form.channel }
  const [name, rateLimit] = [form.name.trim(), form.rateLimit.trim()]
  const isChanged = before?.rate_limit === undefined || form.excess !== excessOf(before)
  const excess = offersExcess(before, rateLimit) && isChanged ? form.excess : kept
  const order = form.order === orderOf(before) ? keptOrder : form.order
  return {
    ...rest,
    channel_id: form.channel,
    ...(name === '' ? {} : { name }),
    ...(rateLimit === '' ? {} : { rate_limit: rateLimit }),
    ...(rateLimit === '' || excess === undefined ? {} : { excess }),
    ...(form.batch.trim() === '' ? {} : { batch: Number(form.batch) }),
    ...(order === undefined || order === '' ? {} : { order }),
  }
}
