"""The messages, enums and services of gRPC that the gateway knows, as tables.

One line for each, continued by indented lines:

* ``file NAME PACKAGE: IMPORTS`` begins a file; what follows belongs to it.
* ``MESSAGE: TYPE NAME NUMBER, …`` where a type is a scalar, or the name of a message or enum, relative to
  the package unless it begins with a dot. ``*TYPE`` is repeated, ``KEY>TYPE`` a map, ``@ONEOF`` after the
  number puts the field into a oneof. Nested messages have dotted names and follow their parent.
* ``enum NAME: VALUE NUMBER, …``
* ``service NAME: METHOD REQUEST RESPONSE, …`` where ``*`` marks streams.

Names, numbers and types are those of the protocols' public definitions, without what the gateway neither
reads nor writes: messages ignore fields that they do not know.
"""

_INFERENCE = """
file model_config.proto inference:
enum DataType: TYPE_INVALID 0, TYPE_BOOL 1, TYPE_UINT8 2, TYPE_UINT16 3, TYPE_UINT32 4, TYPE_UINT64 5,
  TYPE_INT8 6, TYPE_INT16 7, TYPE_INT32 8, TYPE_INT64 9, TYPE_FP16 10, TYPE_FP32 11, TYPE_FP64 12,
  TYPE_STRING 13, TYPE_BF16 14
ModelInput: string name 1, DataType data_type 2, ModelInput.Format format 3, *int64 dims 4, bool optional 8
enum ModelInput.Format: FORMAT_NONE 0, FORMAT_NHWC 1, FORMAT_NCHW 2
ModelOutput: string name 1, DataType data_type 2, *int64 dims 3
ModelVersionPolicy: ModelVersionPolicy.Latest latest 1 @policy_choice,
  ModelVersionPolicy.All all 2 @policy_choice, ModelVersionPolicy.Specific specific 3 @policy_choice
ModelVersionPolicy.Latest: uint32 num_versions 1
ModelVersionPolicy.All:
ModelVersionPolicy.Specific: *int64 versions 1
ModelDynamicBatching: *int32 preferred_batch_size 1, uint64 max_queue_delay_microseconds 2,
  bool preserve_ordering 3
ModelParameter: string string_value 1
ModelTransactionPolicy: bool decoupled 1
ModelConfig: string name 1, string platform 2, ModelVersionPolicy version_policy 3, int32 max_batch_size 4,
  *ModelInput input 5, *ModelOutput output 6, ModelDynamicBatching dynamic_batching 11 @scheduling_choice,
  string>ModelParameter parameters 14, string backend 17, ModelTransactionPolicy model_transaction_policy 19

file grpc_service.proto inference: model_config.proto
service GRPCInferenceService: ServerLive ServerLiveRequest ServerLiveResponse,
  ServerReady ServerReadyRequest ServerReadyResponse, ModelReady ModelReadyRequest ModelReadyResponse,
  ServerMetadata ServerMetadataRequest ServerMetadataResponse,
  ModelMetadata ModelMetadataRequest ModelMetadataResponse,
  ModelInfer ModelInferRequest ModelInferResponse,
  ModelStreamInfer *ModelInferRequest *ModelStreamInferResponse,
  ModelConfig ModelConfigRequest ModelConfigResponse,
  ModelStatistics ModelStatisticsRequest ModelStatisticsResponse,
  RepositoryIndex RepositoryIndexRequest RepositoryIndexResponse,
  RepositoryModelLoad RepositoryModelLoadRequest RepositoryModelLoadResponse,
  RepositoryModelUnload RepositoryModelUnloadRequest RepositoryModelUnloadResponse
ServerLiveRequest:
ServerLiveResponse: bool live 1
ServerReadyRequest:
ServerReadyResponse: bool ready 1
ModelReadyRequest: string name 1, string version 2
ModelReadyResponse: bool ready 1
ServerMetadataRequest:
ServerMetadataResponse: string name 1, string version 2, *string extensions 3
ModelMetadataRequest: string name 1, string version 2
ModelMetadataResponse: string name 1, *string versions 2, string platform 3,
  *ModelMetadataResponse.TensorMetadata inputs 4, *ModelMetadataResponse.TensorMetadata outputs 5
ModelMetadataResponse.TensorMetadata: string name 1, string datatype 2, *int64 shape 3
InferParameter: bool bool_param 1 @parameter_choice, int64 int64_param 2 @parameter_choice,
  string string_param 3 @parameter_choice, double double_param 4 @parameter_choice,
  uint64 uint64_param 5 @parameter_choice
InferTensorContents: *bool bool_contents 1, *int32 int_contents 2, *int64 int64_contents 3,
  *uint32 uint_contents 4, *uint64 uint64_contents 5, *float fp32_contents 6, *double fp64_contents 7,
  *bytes bytes_contents 8
ModelInferRequest: string model_name 1, string model_version 2, string id 3,
  string>InferParameter parameters 4, *ModelInferRequest.InferInputTensor inputs 5,
  *ModelInferRequest.InferRequestedOutputTensor outputs 6, *bytes raw_input_contents 7
ModelInferRequest.InferInputTensor: string name 1, string datatype 2, *int64 shape 3,
  string>InferParameter parameters 4, InferTensorContents contents 5
ModelInferRequest.InferRequestedOutputTensor: string name 1, string>InferParameter parameters 2
ModelInferResponse: string model_name 1, string model_version 2, string id 3,
  string>InferParameter parameters 4, *ModelInferResponse.InferOutputTensor outputs 5,
  *bytes raw_output_contents 6
ModelInferResponse.InferOutputTensor: string name 1, string datatype 2, *int64 shape 3,
  string>InferParameter parameters 4, InferTensorContents contents 5
ModelStreamInferResponse: string error_message 1, ModelInferResponse infer_response 2
ModelConfigRequest: string name 1, string version 2
ModelConfigResponse: ModelConfig config 1
ModelStatisticsRequest: string name 1, string version 2
StatisticDuration: uint64 count 1, uint64 ns 2
InferStatistics: StatisticDuration success 1, StatisticDuration fail 2, StatisticDuration queue 3,
  StatisticDuration compute_input 4, StatisticDuration compute_infer 5, StatisticDuration compute_output 6,
  StatisticDuration cache_hit 7, StatisticDuration cache_miss 8
InferBatchStatistics: uint64 batch_size 1, StatisticDuration compute_input 2,
  StatisticDuration compute_infer 3, StatisticDuration compute_output 4
ModelStatistics: string name 1, string version 2, uint64 last_inference 3, uint64 inference_count 4,
  uint64 execution_count 5, InferStatistics inference_stats 6, *InferBatchStatistics batch_stats 7
ModelStatisticsResponse: *ModelStatistics model_stats 1
RepositoryIndexRequest: string repository_name 1, bool ready 2
RepositoryIndexResponse: *RepositoryIndexResponse.ModelIndex models 1
RepositoryIndexResponse.ModelIndex: string name 1, string version 2, string state 3, string reason 4
ModelRepositoryParameter: bool bool_param 1 @parameter_choice, int64 int64_param 2 @parameter_choice,
  string string_param 3 @parameter_choice, bytes bytes_param 4 @parameter_choice
RepositoryModelLoadRequest: string repository_name 1, string model_name 2,
  string>ModelRepositoryParameter parameters 3
RepositoryModelLoadResponse:
RepositoryModelUnloadRequest: string repository_name 1, string model_name 2,
  string>ModelRepositoryParameter parameters 3
RepositoryModelUnloadResponse:
"""

_TENSORFLOW = """
file tensorflow/core/framework/types.proto tensorflow:
enum DataType: DT_INVALID 0, DT_FLOAT 1, DT_DOUBLE 2, DT_INT32 3, DT_UINT8 4, DT_INT16 5, DT_INT8 6,
  DT_STRING 7, DT_COMPLEX64 8, DT_INT64 9, DT_BOOL 10, DT_QINT8 11, DT_QUINT8 12, DT_QINT32 13,
  DT_BFLOAT16 14, DT_QINT16 15, DT_QUINT16 16, DT_UINT16 17, DT_COMPLEX128 18, DT_HALF 19, DT_RESOURCE 20,
  DT_VARIANT 21, DT_UINT32 22, DT_UINT64 23

file tensorflow/core/framework/tensor_shape.proto tensorflow:
TensorShapeProto: *TensorShapeProto.Dim dim 2, bool unknown_rank 3
TensorShapeProto.Dim: int64 size 1, string name 2

file tensorflow/core/framework/tensor.proto tensorflow: tensorflow/core/framework/tensor_shape.proto
  tensorflow/core/framework/types.proto
TensorProto: DataType dtype 1, TensorShapeProto tensor_shape 2, int32 version_number 3,
  bytes tensor_content 4, *float float_val 5, *double double_val 6, *int32 int_val 7, *bytes string_val 8,
  *float scomplex_val 9, *int64 int64_val 10, *bool bool_val 11, *double dcomplex_val 12,
  *int32 half_val 13, *uint32 uint32_val 16, *uint64 uint64_val 17

file tensorflow/core/protobuf/meta_graph.proto tensorflow: tensorflow/core/framework/tensor_shape.proto
  tensorflow/core/framework/types.proto
TensorInfo: string name 1 @encoding, DataType dtype 2, TensorShapeProto tensor_shape 3
SignatureDef: string>TensorInfo inputs 1, string>TensorInfo outputs 2, string method_name 3

file tensorflow/core/protobuf/error_codes.proto tensorflow.error:
enum Code: OK 0, CANCELLED 1, UNKNOWN 2, INVALID_ARGUMENT 3, DEADLINE_EXCEEDED 4, NOT_FOUND 5,
  ALREADY_EXISTS 6, PERMISSION_DENIED 7, RESOURCE_EXHAUSTED 8, FAILED_PRECONDITION 9, ABORTED 10,
  OUT_OF_RANGE 11, UNIMPLEMENTED 12, INTERNAL 13, UNAVAILABLE 14, DATA_LOSS 15, UNAUTHENTICATED 16

file tensorflow_serving/util/status.proto tensorflow.serving: tensorflow/core/protobuf/error_codes.proto
StatusProto: .tensorflow.error.Code error_code 1, string error_message 2

file tensorflow_serving/apis/model.proto tensorflow.serving: google/protobuf/wrappers.proto
ModelSpec: string name 1, .google.protobuf.Int64Value version 2 @version_choice, string signature_name 3,
  string version_label 4 @version_choice

file tensorflow_serving/apis/predict.proto tensorflow.serving: tensorflow/core/framework/tensor.proto
  tensorflow_serving/apis/model.proto
PredictRequest: ModelSpec model_spec 1, string>.tensorflow.TensorProto inputs 2, *string output_filter 3
PredictResponse: string>.tensorflow.TensorProto outputs 1, ModelSpec model_spec 2

file tensorflow_serving/apis/get_model_metadata.proto tensorflow.serving: google/protobuf/any.proto
  tensorflow/core/protobuf/meta_graph.proto tensorflow_serving/apis/model.proto
SignatureDefMap: string>.tensorflow.SignatureDef signature_def 1
GetModelMetadataRequest: ModelSpec model_spec 1, *string metadata_field 2
GetModelMetadataResponse: ModelSpec model_spec 1, string>.google.protobuf.Any metadata 2

file tensorflow_serving/apis/get_model_status.proto tensorflow.serving: tensorflow_serving/apis/model.proto
  tensorflow_serving/util/status.proto
GetModelStatusRequest: ModelSpec model_spec 1
ModelVersionStatus: int64 version 1, ModelVersionStatus.State state 2, StatusProto status 3
enum ModelVersionStatus.State: UNKNOWN 0, START 10, LOADING 20, AVAILABLE 30, UNLOADING 40, END 50
GetModelStatusResponse: *ModelVersionStatus model_version_status 1

file tensorflow_serving/apis/prediction_service.proto tensorflow.serving:
  tensorflow_serving/apis/get_model_metadata.proto tensorflow_serving/apis/predict.proto
service PredictionService: Predict PredictRequest PredictResponse,
  GetModelMetadata GetModelMetadataRequest GetModelMetadataResponse

file tensorflow_serving/apis/model_service.proto tensorflow.serving:
  tensorflow_serving/apis/get_model_status.proto
service ModelService: GetModelStatus GetModelStatusRequest GetModelStatusResponse
"""

_HEALTH = """
file grpc/health/v1/health.proto grpc.health.v1:
HealthCheckRequest: string service 1
HealthCheckResponse: HealthCheckResponse.ServingStatus status 1
enum HealthCheckResponse.ServingStatus: UNKNOWN 0, SERVING 1, NOT_SERVING 2, SERVICE_UNKNOWN 3
service Health: Check HealthCheckRequest HealthCheckResponse, Watch HealthCheckRequest *HealthCheckResponse
"""

_REFLECTION = """
ServerReflectionRequest: string host 1, string file_by_filename 3 @message_request,
  string file_containing_symbol 4 @message_request,
  ExtensionRequest file_containing_extension 5 @message_request,
  string all_extension_numbers_of_type 6 @message_request, string list_services 7 @message_request
ExtensionRequest: string containing_type 1, int32 extension_number 2
ServerReflectionResponse: string valid_host 1, ServerReflectionRequest original_request 2,
  FileDescriptorResponse file_descriptor_response 4 @message_response,
  ExtensionNumberResponse all_extension_numbers_response 5 @message_response,
  ListServiceResponse list_services_response 6 @message_response,
  ErrorResponse error_response 7 @message_response
FileDescriptorResponse: *bytes file_descriptor_proto 1
ExtensionNumberResponse: string base_type_name 1, *int32 extension_number 2
ListServiceResponse: *ServiceResponse service 1
ServiceResponse: string name 1
ErrorResponse: int32 error_code 1, string error_message 2
service ServerReflection: ServerReflectionInfo *ServerReflectionRequest *ServerReflectionResponse
"""
_REFLECTIONS = [
    f"\nfile grpc/reflection/{version}/reflection.proto grpc.reflection.{version}:{_REFLECTION}"
    for version in ("v1", "v1alpha")
]

TABLES = (_INFERENCE, _TENSORFLOW, _HEALTH, *_REFLECTIONS)
