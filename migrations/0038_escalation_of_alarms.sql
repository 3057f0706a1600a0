-- expand: actions of rules for alarms that nobody acknowledges
ALTER TABLE rule_states ADD COLUMN escalate_at timestamptz, ADD COLUMN escalation jsonb;
COMMENT ON COLUMN rule_states.escalate_at IS 'When it is looked whether its alarm is escalated; NULL: not by itself.';
COMMENT ON COLUMN rule_states.escalation IS 'Of the alarm of the state: since when its time counts, and up to which time its escalations are done; NULL: it is not escalated.';
CREATE INDEX rule_states_escalating ON rule_states (escalate_at) WHERE escalate_at IS NOT NULL;

ALTER TABLE alarms ADD COLUMN escalations integer NOT NULL DEFAULT 0;
COMMENT ON COLUMN alarms.escalations IS 'How often it was escalated, because nobody acknowledged it.';
ALTER TABLE alarm_history DROP CONSTRAINT alarm_history_change_check, ADD CONSTRAINT alarm_history_change_check
  CHECK (change IN ('raise', 'unsilence', 'escalate', 'acknowledge', 'unacknowledge', 'assign', 'comment', 'clear'));
