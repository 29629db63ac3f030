use fabro_events::MessagePurpose;

/// Why a recorded user message was sent. `follows_warning`: a warning that the answer is not what
/// its stage requires was recorded just before it.
///
/// Logs of earlier versions do not mark their messages. Only there, a continuation is recognised by
/// its text, and a correction by the warning before it.
pub fn recorded_purpose(
    mark: Option<MessagePurpose>,
    text: &str,
    follows_warning: bool,
) -> MessagePurpose {
    const UNMARKED_CONTINUATION: &str = "[Your answer reached its limit of tokens and was cut off. \
        Go on exactly where it stopped; do not repeat what you said.]";
    match mark {
        Some(purpose) => purpose,
        None if text == UNMARKED_CONTINUATION => MessagePurpose::Continuation,
        None if follows_warning => MessagePurpose::Correction,
        None => MessagePurpose::Request,
    }
}
