/** What a run gets: the inputs of its function and its messages, which are read now if they are stored apart. */
import type { MessageContents, TriggerMessage } from '#queues/index.ts'
import type { AssignedRun, RunSpec } from '../model/run.ts'
import { inputsOf } from '../model/trigger-message.ts'

/** What a run gets, as JSON. `triggerJson` is empty for a run that no message started. */
export type GivenTo = { inputsJson: string; triggerJson: string }

/** Returns what a run gets that has its messages in its spec. */
export function givenInline({ inputs, trigger }: RunSpec): GivenTo {
  return { inputsJson: JSON.stringify(inputs), triggerJson: trigger === undefined ? '' : JSON.stringify(trigger) }
}

/** Undefined: a message is no longer stored. */
export async function readGiven(contents: MessageContents, { spec }: AssignedRun): Promise<GivenTo | undefined> {
  const { given, inputs } = spec
  if (given === undefined) return givenInline(spec)
  const found = await Promise.all(
    given.messages.map(async (message) =>
      'content_key' in message ? await contents.find(message.content_key) : { message, text: undefined },
    ),
  )
  const messages: TriggerMessage[] = []
  for (const one of found) {
    if (one === undefined) return undefined
    messages.push(one.message)
  }
  const [first] = messages
  if (first === undefined) return undefined
  const trigger = given.is_list ? messages : first
  return {
    inputsJson: JSON.stringify(inputsOf(trigger, given.params ?? undefined, inputs)),
    triggerJson: given.is_list ? JSON.stringify(messages) : (found[0]?.text ?? JSON.stringify(first)),
  }
}
