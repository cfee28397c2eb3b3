#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/strings.h"
#include "services/gateway/http/answer_fields.h"
#include "services/gateway/http/answers.h"
#include "services/gateway/http/backend.h"
#include "services/gateway/http/handlers.h"
#include "services/gateway/request/answer.h"
#include "services/gateway/request/field_error.h"
#include "services/gateway/request/limits.h"

namespace ragcache::gateway {

using boost::asio::awaitable;

awaitable<absl::Status> handle_chat(Call& call) {
  absl::StatusOr<nlohmann::json> json = co_await read_json(call);
  if (!json.ok()) co_return json.status();
  absl::StatusOr<ChatBody> body = parse_chat(*json);
  if (!body.ok()) co_return body.status();
  std::string name = body->request.model();
  const RagLimits limits = {.default_top_k = call.config().default_top_k,
                            .max_top_k = call.config().max_top_k};
  absl::StatusOr<controller::v1::AnswerRequest> request =
      to_answer(std::move(body->request), limits);
  if (!request.ok()) co_return request.status();
  absl::StatusOr<ModelInfo> model = co_await backend::find_model(call, std::move(name));
  if (!model.ok()) co_return model.status();
  absl::Status fits = check_max_tokens(*request, model->context_tokens);
  if (!fits.ok()) co_return fits;

  request->set_request_id(call.request().id);
  request->set_tenant(call.tenant);
  const ChatFormat format(AnswerFormat::Head{.id = str_cat("chatcmpl-", call.request().id),
                                             .model = model->name,
                                             .created = unix_seconds(),
                                             .include_usage = body->stream.include_usage});
  std::vector<controller::v1::AnswerRequest> requests;
  requests.push_back(*std::move(request));
  absl::Status status = co_await answer(call, std::move(requests), body->stream, format);
  co_return status;
}

awaitable<absl::Status> handle_completions(Call& call) {
  absl::StatusOr<nlohmann::json> json = co_await read_json(call);
  if (!json.ok()) co_return json.status();
  absl::StatusOr<CompletionBody> body = parse_completion(*json);
  if (!body.ok()) co_return body.status();
  std::string name = body->requests.front().model();
  std::vector<controller::v1::AnswerRequest> requests;
  for (v1::CompleteRequest& one : body->requests) {
    absl::StatusOr<controller::v1::AnswerRequest> request = to_answer(std::move(one));
    if (!request.ok()) co_return request.status();
    requests.push_back(*std::move(request));
  }
  if (requests.size() * requests.front().n() > kMaxCompletionChoices) {
    co_return invalid_field("n", str_cat("prompts times n must be 1 to ", kMaxCompletionChoices,
                                         ", not ", requests.size() * requests.front().n()));
  }
  absl::StatusOr<ModelInfo> model = co_await backend::find_model(call, std::move(name));
  if (!model.ok()) co_return model.status();
  absl::Status fits = check_max_tokens(requests.front(), model->context_tokens);
  if (!fits.ok()) co_return fits;

  for (size_t i = 0; i < requests.size(); ++i) {
    requests[i].set_request_id(i == 0 ? call.request().id : str_cat(call.request().id, "-", i));
    requests[i].set_tenant(call.tenant);
  }
  const CompletionFormat format(AnswerFormat::Head{.id = str_cat("cmpl-", call.request().id),
                                                   .model = model->name,
                                                   .created = unix_seconds(),
                                                   .include_usage = body->stream.include_usage});
  absl::Status status = co_await answer(call, std::move(requests), body->stream, format);
  co_return status;
}

}  // namespace ragcache::gateway
